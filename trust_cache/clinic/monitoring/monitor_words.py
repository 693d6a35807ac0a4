"""What monitoring found, in plain words, with what each number means and does not mean."""

from trust_cache.base.text_tables import Table, confidence, percent
from trust_cache.clinic.monitoring.drift import shift_in_words
from trust_cache.clinic.monitoring.followed_cases import WatchedRate
from trust_cache.clinic.monitoring.monitor import Monitoring
from trust_cache.clinic.worklist import AUDIT, DISMISS, REVIEW
from trust_cache.statistics.score_drift import ALARM

MEANINGS = (
    "The bounds are a confidence sequence: they hold at every moment, however often and whenever anyone"
    " looks.",
    "A case enters once its follow-up time has passed since its examination, in the order of examinations."
    " Its date decides, never its outcome.",
    "A case that entered without a known outcome counts as cancer for the confirmation and as healthy for the"
    " alarm. Numbers without the unknown are descriptive, and so are those of recent cases.",
    "The rate of all cases so far answers a late change slowly. Look at the recent cases and at the drift of"
    " scores too.",
    "Dismissed cases are not read, so their cancers are found only by symptoms or at the next screening"
    " (verification bias): a cancer that nobody finds within the follow-up time counts as healthy. The audit"
    " does not have this bias, but it finds only what a reader can see.",
    "Cases of one woman in several rounds are not independent; the bounds treat them as if they were.",
)


def sentences(found: Monitoring) -> list[str]:
    """Return the result in plain words: the verdict first."""
    text = [verdict(found)]
    sure = confidence(found.delta)
    if found.dismissed is not None:
        text.append(
            _stream(
                found.dismissed,
                "dismissed",
                f"whose follow-up of {found.settings.follow_up} has passed",
                sure,
            )
        )
    if found.recent is not None:
        recent = found.recent
        text.append(
            f"Recent cases (examined after {recent.since}): {recent.entered:,} entered, {recent.cancers:,}"
            f" with cancer, {recent.unknown:,} unknown; {percent(recent.rate)} of those with a known outcome."
            " Descriptive."
        )
    if found.audited is not None:
        text.append(
            _stream(found.audited, "audited", f"that had {found.settings.reading_time} to be read", sure)
            + " This is the rate of cancers that a reader finds, not of cancers within"
            f" {found.settings.follow_up}. Unlike the dismissed cases, all audited ones are read, so no"
            " cancer is missed because nobody looked (verification bias)."
        )
    elif found.decided[AUDIT]:
        text.append(f"{found.decided[AUDIT]:,} cases were audited; give what readers found with --readings.")
    drift = found.drift
    if drift.cases:
        text.append(
            f"Scores of {drift.cases:,} triaged cases against {drift.reference:,} evaluation cases:"
            f" {shift_in_words(drift.shift)}; evidence for drift {drift.wealth:.3g} to 1 (an alarm is"
            f" {ALARM:.0f} to 1{', reached' if drift.differs else ''})."
        )
    return text


def verdict(found: Monitoring) -> str:
    """Return the status as a sentence."""
    certified = found.certified
    if certified is None:
        return "The model has no certificate, so there is no bound to compare with."
    bound = f"the certified {percent(certified.bound)}"
    limit = f" (limit {percent(certified.limit)}, status {certified.status})"
    if found.status == "alarm":
        streams = {"dismissed": found.dismissed, "audited": found.audited}
        name, rate = next((name, rate) for name, rate in streams.items() if rate is not None and rate.alarm)
        return (
            f"Alarm: more than {bound}{limit} of the {name} cases have cancer, first certain after"
            f" {rate.alarm_after:,} cases (examined until {rate.alarm_day}). Stop dismissing with this model."
        )
    if found.status == "confirmed":
        return f"Confirmed: the rate is within {bound}{limit}, even if every unknown outcome is a cancer."
    return f"Open: the outcomes neither confirm {bound}{limit} nor contradict it yet."


def _stream(rate: WatchedRate, name: str, entered: str, sure: str) -> str:
    later = (
        f" {rate.later_cancers:,} cancers were found later and are not counted." if rate.later_cancers else ""
    )
    alike = (
        f" If the unknown are like the others (descriptive): at most {percent(rate.upper_if_unknown_alike)}."
        if rate.unknown and rate.upper_if_unknown_alike is not None
        else ""
    )
    return (
        f"Of the {name} cases, {rate.entered:,} {entered} are counted: {rate.cancers:,} with cancer,"
        f" {rate.unknown:,} unknown; {rate.waiting:,} are still waiting.{later} With {sure} confidence at"
        f" every moment, between {percent(rate.lower)} and {percent(rate.upper)} of such cases have"
        f" cancer.{alike}"
    )


def table_of(found: Monitoring) -> Table:
    """Return the numbers of the streams side by side."""
    streams = {"dismissed": found.dismissed, "audited": found.audited}
    shown = {name: rate for name, rate in streams.items() if rate is not None}
    rows = {
        "cases in the worklists": [f"{found.decided[key]:,}" for key in (DISMISS, AUDIT)],
        "counted": [f"{rate.entered:,}" for rate in shown.values()],
        "with cancer": [f"{rate.cancers:,}" for rate in shown.values()],
        "outcome unknown": [f"{rate.unknown:,}" for rate in shown.values()],
        "still waiting": [f"{rate.waiting:,}" for rate in shown.values()],
        "rate at most (every unknown a cancer)": [percent(rate.upper) for rate in shown.values()],
        "rate at least (every unknown healthy)": [percent(rate.lower) for rate in shown.values()],
        "at most, without the unknown (descriptive)": [
            percent(rate.upper_if_unknown_alike) for rate in shown.values()
        ],
    }
    names = list(streams)
    rows["cases in the worklists"] = [rows["cases in the worklists"][names.index(name)] for name in shown]
    return Table(
        "Counts and bounds",
        ("", *shown),
        tuple((name, *cells) for name, cells in rows.items()),
        f"Besides, {found.decided[REVIEW]:,} cases were read; the outcomes name {found.reviewed_cancers:,}"
        " cancers among them.",
    )
