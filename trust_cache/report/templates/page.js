"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(at(id).textContent);
  const cohorts = read("explorer-data");
  const state = { cohort: 0, series: 0, stop: 0 };

  // Every number is in the page; the script only multiplies by the fee.
  const set = (id, text, value) => {
    const element = at(id);
    element.textContent = text;
    if (value !== undefined) element.value = String(value);
  };
  const grouped = (count) => count.toLocaleString("en");
  const cohort = () => cohorts[state.cohort];
  const series = () => cohort().series[state.series];

  function showStatus() {
    const here = series().certified.filter((point) => point.stop === state.stop);
    const shown = here.find((point) => point.certified) ?? here[0];
    const names = here.map((point) => point.target + " target: " + point.status);
    at("status").className = "chip " + (shown?.certified ? "met" : "unmet");
    set("status", shown === undefined ? "explored, not certified" : (shown.certified ? "" : "N/A: ") + shown.status);
    set("state-text", series().name + ", threshold " + series().tau_text[state.stop]
      + (here.length ? " (" + names.join(", ") + ")" : "") + ". "
      + series().dismissal[state.stop] + " dismissed; with " + cohort().confidence + " confidence at most "
      + (here.length ? series().bound_text[state.stop] + " of those have cancer."
        : series().simultaneous_text[state.stop] + " of those have cancer, whatever threshold you choose; "
          + series().bound_text[state.stop] + " if this threshold had been fixed beforehand."));
    document.querySelectorAll("#jumps button").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.dataset.stop === String(state.stop)));
    });
  }

  function showNumbers() {
    const s = series(), i = state.stop, lowered = s.lowered[i];
    set("search-dismissed", grouped(s.search_dismissed[i]), s.search_dismissed[i]);
    set("search-dismissal", s.search_dismissal[i]);
    set("search-missed", s.search_missed[i] + " of " + s.search_positives, s.search_missed[i]);
    set("search-recall", s.search_recall[i]);
    set("dismissed", grouped(s.dismissed[i]), s.dismissed[i]);
    set("dismissal", s.dismissal[i]);
    set("missed", s.missed[i] + " of " + s.positives, s.missed[i]);
    set("recall", s.recall[i]);
    set("recall-lower", s.recall_lower[i]);
    set("omission", s.omission[i]);
    set("bound", s.bound_text[i], s.bound[i]);
    set("simultaneous", s.simultaneous_text[i], s.simultaneous[i]);
    set("lowered-tau", lowered === null ? "a rank (none below)" : s.tau_text[lowered]);
    set("lowered", lowered === null ? "—" : s.simultaneous_text[lowered] + " (" + s.dismissal[lowered] + " dismissed)",
      lowered === null ? "" : s.simultaneous[lowered]);
    set("reviewed", s.reviewed[i]);
    set("saved", s.saved[i]);
    set("missed-per-1000", s.missed_per_1000[i]);
    at("image-row").hidden = s.image_dismissal === null;
    if (s.image_dismissal !== null) set("image-dismissal", s.image_dismissal[i]);
    at("assumed-row").hidden = cohort().assumed === null;
    if (cohort().assumed !== null) {
      set("assumed", cohort().assumed);
      set("assumed-omission", s.assumed_omission[i]);
    }
    at("bar-dismissed").setAttribute("width", s.saved[i]);
    set("bar-left", s.saved[i] + " of 1,000 dismissed");
    set("bar-right", s.reviewed[i] + " still read");
  }

  function strictestTarget() {
    // The rule's threshold falls as the target rises: the last target whose threshold is not below this one.
    return series().targets.findLastIndex((stop) => stop !== null && stop >= state.stop);
  }

  function showSliders() {
    const s = series(), threshold = at("threshold"), target = at("target");
    threshold.value = String(state.stop);
    threshold.setAttribute("aria-valuetext", s.tau_text[state.stop] + ", " + s.dismissal[state.stop] + " dismissed");
    set("threshold-text", s.tau_text[state.stop]);
    at("threshold-text").dataset.tau = String(s.tau[state.stop]);
    // Several targets can share a threshold: the chosen one stays.
    const kept = s.targets[target.valueAsNumber] === state.stop ? target.valueAsNumber : strictestTarget();
    if (kept >= 0) target.value = String(kept);
    const text = kept >= 0 ? cohort().targets[kept] : "below " + cohort().targets[0];
    set("target-text", text);
    target.setAttribute("aria-valuetext", text);
  }

  function showCost() {
    const fee = at("fee").valueAsNumber, readers = Number(at("readers").value);
    const saved = series().saved[state.stop];
    const valid = Number.isFinite(fee) && fee >= 0;
    at("economics").classList.toggle("filled", valid);
    set("cost", saved + (readers === 1 ? "" : " × " + readers) + " readings saved per 1,000 cases" + (valid
      ? " × " + fee.toLocaleString("en") + " = "
        + (Number(saved) * readers * fee).toLocaleString("en", { maximumFractionDigits: 0 })
      : "; enter a fee to see their cost."));
  }

  function show() {
    showStatus();
    showNumbers();
    showSliders();
    showCost();
  }

  function goTo(point) {
    state.stop = point.stop;
    at("target").value = String(cohort().targets.indexOf(point.target));
    show();
  }

  function choose(value) {
    [state.cohort, state.series] = value.split("/").map(Number);
    const s = series(), c = cohort();
    at("threshold").max = String(s.tau.length - 1);
    at("target").max = String(c.targets.length - 1);
    for (const part of ["search", "evaluation"]) {
      set(part + "-size", "(" + c.parts[part].cases + " cases, " + c.parts[part].positives + " with cancer)");
    }
    document.querySelectorAll(".confidence").forEach((element) => { element.textContent = c.confidence; });
    at("jumps").replaceChildren(...s.certified.map((point) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = point.target + " target" + (point.certified ? "" : " (N/A)");
      button.disabled = point.stop === null;
      button.title = point.reason === null ? point.status : point.reason;
      button.dataset.stop = String(point.stop);
      button.addEventListener("click", () => goTo(point));
      return button;
    }));
    state.stop = 0;
    const first = s.certified.find((point) => point.stop !== null);
    if (first === undefined) show();
    else goTo(first);
  }

  function startExplorer() {
    const select = at("configuration");
    cohorts.forEach((c, number) => {
      const place = cohorts.length > 1 ? select.appendChild(document.createElement("optgroup")) : select;
      if (cohorts.length > 1) place.label = c.name;
      c.series.forEach((s, index) => place.append(new Option(s.name, number + "/" + index)));
    });
    select.value = "0/" + cohorts[0].leading;
    select.addEventListener("change", () => choose(select.value));
    at("threshold").addEventListener("input", () => { state.stop = at("threshold").valueAsNumber; show(); });
    at("target").addEventListener("input", () => {
      const asked = at("target").valueAsNumber, stop = series().targets[asked];
      if (stop === null) {
        set("target-text", cohort().targets[asked] + ": infeasible");
        return;
      }
      state.stop = stop;
      show();
    });
    at("fee").addEventListener("input", showCost);
    at("readers").addEventListener("change", showCost);
    at("controls").addEventListener("submit", (event) => event.preventDefault());
    for (const id of ["controls", "explored", "economics"]) at(id).hidden = false;
    at("without-scripts").hidden = true;
    choose(select.value);
  }

  // The static chart stays in the page, for print and for browsers without scripts.
  function draw(element, spec) {
    const live = element.appendChild(document.createElement("div"));
    live.className = "live";
    // Only single and layered views can take the width they are given.
    const single = "layer" in spec || "mark" in spec;
    const fluid = single ? { width: "container", autosize: { type: "fit-x", contains: "padding" } } : {};
    window.vegaEmbed(live, { ...spec, ...fluid, background: "transparent" }, {
      mode: "vega-lite", ast: true, renderer: "svg", actions: false, defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
    }).then(
      () => element.classList.add("drawn"),
      (error) => { live.remove(); console.error(error); },
    );
  }

  function startCharts() {
    const specs = read("chart-data");
    const waiting = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((found) => found.isIntersecting)) {
        waiting.unobserve(entry.target);
        draw(entry.target, specs[entry.target.dataset.chart]);
      }
    }, { rootMargin: "400px" });
    document.querySelectorAll("[data-chart]").forEach((element) => waiting.observe(element));
  }

  startExplorer();
  startCharts();
})();
