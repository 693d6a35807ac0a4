"""Tables of a certification for terminal, Markdown and LaTeX: the paper's table and the details."""

from collections.abc import Sequence
from itertools import groupby

from trust_cache.base.errors import InputError
from trust_cache.base.text_tables import NO_NUMBER, Table, confidence, percent, whole_percent
from trust_cache.certificate.certification import Certification
from trust_cache.certificate.points import Point
from trust_cache.certificate.stopped_cases import lost_dismissal, stopped_cases
from trust_cache.manifest.case_groups import parse_groups
from trust_cache.statistics.prevalence import ASSUMPTION
from trust_cache.statistics.rules import RULES

NOT_AVAILABLE = "N/A"
_OF_A_PATIENT = " The bound is for a random case of a random patient."
BOUND, BOUND_CORRECTED = "Bound", "Bound corrected"  # headings in every table but the paper's


def name_of(configuration: str | None) -> str:
    """Name a configuration where the file has no such column."""
    return "scores" if configuration is None else configuration


def target_header(target: str) -> str:
    """Name the column of a target's dismissal as the paper does."""
    return f"Case @{target} target"


def all_tables(certification: Certification) -> dict[str, Table]:
    """Return every table of a certification, by the names of a report's anchors and files."""
    tables = {"paper": paper_table(certification), "details": details_table(certification)}
    if certification.settings.prevalence is not None:
        tables["prevalence"] = _prevalence_table(certification)
    for number, column in enumerate(certification.settings.by):
        name = "subgroups" if not number else f"subgroups-{number + 1}"
        tables[name] = _subgroup_table(certification, column)
    if certification.spreads:
        tables["resplits"] = _spread_table(certification)
    if certification.settings.protocol.examines_pictures and certification.cohort.problems[0]:
        tables["checks"] = _checks_table(certification)
    return tables


def paper_table(certification: Certification) -> Table:
    """Return the paper's table: one row per configuration, N/A where a target is not met."""
    settings = certification.settings
    bound = f"CPU{confidence(settings.delta)[:-1]}"  # the paper's name; CPU99 at 99 % confidence
    rows = []
    for configuration, group in groupby(certification.points, key=lambda point: point.configuration):
        points = list(group)
        cells = [name_of(configuration)]
        for point in points:
            cells += [_if_met(point, point.dismissal), _if_met(point, point.bound, NO_NUMBER)]
        auroc = points[0].auroc_case
        cells.append(NO_NUMBER if auroc is None else f"{auroc:.4f}")
        cells += [percent(point.image_dismissal) for point in points]
        rows.append(tuple(cells))
    header = ["Configuration"]
    for target in settings.targets:
        header += [target_header(whole_percent(target)), bound]
    header.append("Case AUROC")
    header += [f"Image dismissal at τ{100 * target:.6g}" for target in settings.targets]
    title = f"Dismissal on the evaluation subset: {describe_cases(certification.points)}"
    incomplete = any(point.incomplete for point in certification.points)
    legend = "AUROC and recall: over complete cases." if incomplete else ""
    return Table(title, tuple(header), tuple(rows), legend)


def describe_cases(points: Sequence[Point]) -> str:
    """Describe the evaluation cases: how many, positive, incomplete, and of how many patients."""
    first = points[0]
    text = f"{first.cases:,} cases, {first.positives:,} positive ({percent(first.prevalence)})"
    most = max(points, key=lambda point: point.incomplete)
    if most.incomplete:
        same = all(point.incomplete == most.incomplete for point in points)
        text += (
            f", {'' if same else 'up to '}{most.incomplete:,} incomplete and reviewed"
            f" ({most.incomplete_positives:,} positive)"
        )
    if first.set_aside:
        text += f", of {first.patients:,} patients"
    return text


def details_table(certification: Certification) -> Table:
    """Return one row per point: counts and every bound, with the names that rule-out studies use."""
    settings = certification.settings
    rows = [
        (
            name_of(point.configuration),
            whole_percent(point.target),
            NO_NUMBER if point.tau is None else f"{point.tau:.6g}",
            f"{point.dismissed:,} of {point.cases:,}",
            f"{point.positives_dismissed:,} of {point.positives:,}",
            _if_met(point, point.dismissal),
            _if_met(point, point.false_omission_rate),
            _if_met(point, point.bound),
            _if_met(point, point.bound_corrected),
            percent(point.recall),
            percent(point.recall_lower),
            point.status,
        )
        for point in certification.points
    ]
    level = confidence(settings.delta)
    header = (
        "Configuration", "Target", "τ", "Dismissed", "Positives dismissed", "Dismissal (CRR)", "FOR", BOUND,
        BOUND_CORRECTED, "Recall", "Recall at least", "Status",
    )  # fmt: skip
    legend = (
        "CRR: caseload reduction rate, the share dismissed. FOR: false omission rate, cancer among"
        f" the dismissed as observed. {BOUND}: its one-sided {level} Clopper-Pearson upper"
        f" bound; corrected: for the {_points_compared(certification.points[0])}"
        " (configurations x targets). Recall at least: its one-sided"
        f" {level} lower bound. Status: certified if the target is met and the corrected bound is below the"
        f" limit of {_limit_words(certification)}. Rule {settings.rule}: {RULES[settings.rule].promise}."
        f" Protocol {settings.protocol.name}."
    )
    first = certification.points[0]
    if first.set_aside:
        legend += f" Bounds use one case of each of the {first.patients:,} patients."
    title = f"Operating points in detail (threshold rule: {settings.rule})"
    return Table(title, header, tuple(rows), legend, keys=2)


def _points_compared(point: Point) -> str:
    return f"{point.compared} point{'' if point.compared == 1 else 's'} compared"


def _limit_words(certification: Certification) -> str:
    limit = percent(certification.points[0].limit)
    if certification.settings.limit is not None:
        return limit
    drawn = ", one of each patient" if certification.points[0].set_aside else ""
    return f"{limit}, the prevalence of the cases{drawn}"


def _prevalence_table(certification: Certification) -> Table:
    settings = certification.settings
    rows = tuple(
        (
            name_of(point.configuration),
            whole_percent(point.target),
            _if_met(point, point.assumed_false_omission_rate_upper, digits=4),
            _if_met(point, point.assumed_false_omission_rate_upper_corrected, digits=4),
            NOT_AVAILABLE if not point.met else f"{point.assumed_missed_per_1000_upper:.4g}",
            NOT_AVAILABLE if not point.met else f"{point.assumed_missed_per_1000_upper_corrected:.4g}",
        )
        for point in certification.points
    )
    title = f"At a prevalence of {whole_percent(settings.prevalence or 0.0)}"
    header = (
        "Configuration", "Target", "FOR at most", "corrected", "Missed cancers per 1,000 at most",
        "corrected",
    )  # fmt: skip
    legend = f"With {confidence(settings.delta)} confidence; {ASSUMPTION}."
    return Table(title, header, rows, legend, keys=2)


def _subgroup_table(certification: Certification, column: str) -> Table:
    rows = tuple(
        (
            name_of(item.point.configuration),
            whole_percent(item.point.target),
            item.group,
            f"{item.point.dismissed:,} of {item.point.cases:,}",
            f"{item.point.positives_dismissed:,} of {item.point.positives:,}",
            percent(item.point.dismissal),
            percent(item.point.bound),
            percent(item.point.bound_corrected),
            percent(item.point.recall),
            item.point.status,
        )
        for item in certification.subgroups
        if item.column == column
    )
    header = (
        "Configuration", "Target", column_name(column), "Dismissed",
        "Positives dismissed", "Dismissal", BOUND, BOUND_CORRECTED, "Recall", "Status",
    )  # fmt: skip
    legend = (
        f"Corrected: for the {certification.subgroups[0].point.compared} points compared (configurations x"
        " targets x groups of all columns, all cases being one more group)."
    )
    return Table(f"The same thresholds by {column_name(column)}, met or not", header, rows, legend, keys=3)


def column_name(by: str) -> str:
    """Return the name of a column to group by, without the edges of its bands."""
    try:
        return parse_groups(by, ()).column
    except InputError:
        return by  # a column with such a name


def _spread_table(certification: Certification) -> Table:
    rows = tuple(
        (
            name_of(spread.configuration),
            whole_percent(spread.target),
            f"{spread.met} of {spread.resplits} ({percent(spread.met_share, 0)})",
            percent(spread.met_share_expected, 0),
            _range(spread.dismissal),
            _range(spread.bound),
        )
        for spread in certification.spreads
    )
    header = (
        "Configuration", "Target", "Target met", "Expected by the Beta-binomial law",
        "Dismissal, median (5-95 %)", f"{BOUND}, median (5-95 %)",
    )  # fmt: skip
    title = f"The spread over {certification.settings.resplits} other random splits"
    return Table(title, header, rows, keys=2)


def _checks_table(certification: Certification) -> Table:
    """Return what each check stops, and what that costs the first configuration."""
    cohort, settings = certification.cohort, certification.settings
    points = certification.points[: len(settings.targets)]
    rows = []
    for item in stopped_cases(cohort):
        lost = lost_dismissal(cohort, certification.split, item, points)
        counts = (len(item.cases), int(cohort.labels[list(item.cases)].sum()), len(item.alone))
        rows.append((item.check, *(f"{number:,}" for number in counts), *map(percent, lost)))
    lost_at = (f"Dismissal lost at {whole_percent(target)}" for target in settings.targets)
    header = ("Check", "Cases stopped", "With cancer", "By no other", *lost_at)
    legend = (
        f"All {cohort.cases:,} cases. Dismissal lost: evaluation cases that this check alone keeps from being"
        f" dismissed, for {name_of(cohort.configurations[0])}."
    )
    title = f"What the protocol {settings.protocol.name} stops"
    return Table(title, header, tuple(rows), legend=legend, keys=1)


def sentences(certification: Certification) -> list[str]:
    """Return the headline result and its bound for each certified point."""
    level = confidence(certification.settings.delta)
    return [
        f"{name_of(point.configuration)} at {whole_percent(point.target)}: {percent(point.dismissal)}"
        f" of cases are below {point.tau:.6g}; with {level} confidence at most"
        f" {percent(point.bound)} of those have cancer ({point.positives_dismissed} of the"
        f" {point.positives} cancers are among them; the cohort's own rate is"
        f" {percent(point.prevalence)}).{_OF_A_PATIENT if point.set_aside else ''}"
        for point in certification.points
        if point.certified
    ]


def next_steps(certification: Certification) -> list[str]:
    """Return what a user can do where no point is certified; nothing where one is."""
    points, settings = certification.points, certification.settings
    if any(point.certified for point in points):
        return []
    found = {point.status for point in points}
    positives = points[0].positives
    lower = ", ".join(whole_percent(target) for target in settings.targets)
    steps = {
        "Choose a threshold with a margin: `--rule crc` keeps the miss rate at the target on average, so the"
        " target is met more often, at a lower dismissal.": "target missed" in found
        and settings.rule != "crc",
        f"Ask for less: a lower `--target` than {lower} leaves room for misses.": True,
        "Take a rule that needs fewer positives: `--rule crc`, or the paper's `--rule recall`.": (
            "infeasible" in found
        ),
        f"Certify on more cases: {positives:,} positives here. `trust-cache plan --cases N --positives C`"
        " says how often a target is met and which bounds are within reach.": True,
        "Look at the scores: if cancers are not above the others, no threshold helps. A case AUROC at or"
        " below 0.5 may mean reversed scores.": bool(found & {"nothing dismissed", "bound not below limit"}),
    }
    tried = "Do not try seeds until one is certified: every attempt is recorded and weakens the certificate."
    return [*(text for text, applies in steps.items() if applies), tried]


def reasons(certification: Certification) -> list[str]:
    """Return the status of each point that is not certified, and the reason."""
    return [
        f"{name_of(point.configuration)} at {whole_percent(point.target)}: {point.explained}"
        for point in certification.points
        if not point.certified
    ]


def _if_met(point: Point, value: float | None, otherwise: str = NOT_AVAILABLE, digits: int = 2) -> str:
    return percent(value, digits) if point.met else otherwise


def _range(quantiles: dict[str, float]) -> str:
    low, middle, high = (percent(quantiles[name]) for name in ("q05", "q50", "q95"))
    return f"{middle} ({low} - {high})"
