"""Plans as sentences and tables of text."""

from trust_cache.base.text_tables import Table, confidence, percent, whole_percent
from trust_cache.certificate.planning.plan import Need, Reach, RuleOutlook
from trust_cache.certificate.planning.watch_plan import CHANCES, Answer, AssurancePlan, WatchPlan


def need_in_words(need: Need) -> str:
    """Say how many cases a bound needs."""
    return (
        f"A bound of {whole_percent(need.bound)} at {confidence(need.delta)} confidence with"
        f" {need.misses} cancers among the dismissed needs {need.dismissed:,} dismissed cases."
        f" At a dismissal of {whole_percent(need.dismissal)} that is {need.evaluation_cases:,} evaluation"
        f" cases, and {need.cases:,} cases with the 20 % for the threshold search."
    )


def assurance_in_words(plan: AssurancePlan) -> str:
    """Say how likely the bound is at most the limit."""
    return (
        f"If {whole_percent(plan.rate)} of the dismissed cases have cancer and"
        f" {whole_percent(plan.dismissal)} are dismissed, {plan.cases:,} cases ({plan.evaluation_cases:,} for"
        f" evaluation, {plan.dismissed:,} of them dismissed) give a bound of at most"
        f" {whole_percent(plan.limit)} at {confidence(plan.delta)} confidence with a chance of"
        f" {percent(plan.assurance, 1)} (assurance)."
        + (
            ""
            if plan.wanted is None
            else f" With more cases it stays at {whole_percent(plan.wanted)} or above."
        )
    )


def watch_table(plan: WatchPlan) -> Table:
    """Return when monitoring answers, by true rate."""
    counted = "followed" if plan.audit is None else "audited"
    rows = [_answer("confirmed", item, plan.audit) for item in plan.confirmations]
    rows += [
        _answer("alarm" if item.of_bound > 1 else "false alarm", item, plan.audit) for item in plan.alarms
    ]
    needed = tuple(f"{counted}, {whole_percent(chance)} chance" for chance in CHANCES)
    dismissed = (
        () if plan.audit is None else tuple(f"dismissed, {whole_percent(chance)}" for chance in CHANCES)
    )
    share = "" if plan.audit is None else f", {whole_percent(plan.audit)} of the dismissed audited"
    return Table(
        f"After the certificate: when monitoring answers (bound {percent(plan.bound)}{share})",
        ("Answer", "True rate", "of the bound", *needed, *dismissed, f"by {plan.horizon:,}"),
        tuple(rows),
        f"Cases whose {'follow-up' if plan.audit is None else 'reading'} is complete, watched all the time at"
        f" {confidence(plan.delta)} confidence; the prior is that of a certificate with {plan.misses} of"
        f" {plan.certified_dismissed:,} dismissed. A dash: not within {plan.horizon:,} cases.",
    )


def _answer(name: str, item: Answer, audit: float | None) -> tuple[str, ...]:
    cells = (*item.cases, *(() if audit is None else item.dismissed))
    shown = ("—" if cell is None else f"{cell:,}" for cell in cells)
    return (name, percent(item.rate, 3), f"{item.of_bound:.2f}", *shown, percent(item.chance, 1))


def reach_in_words(reach: Reach) -> str:
    """Say what a cohort is split into and what no model can beat."""
    return (
        f"{reach.cases:,} cases with {reach.positives:,} positive: search {reach.search_cases:,}"
        f" ({reach.search_positives:,}), evaluation {reach.evaluation_cases:,}"
        f" ({reach.evaluation_positives:,}). On search, recall moves in steps of"
        f" {percent(reach.recall_step)}. No model can have a bound below {percent(reach.best_bound, 4)}"
        " (every negative dismissed, no positive).\n"
    )


def reach_tables(reach: Reach) -> tuple[Table, Table]:
    """Return the chances of the rules, and the bounds by dismissal."""
    others = reach.targets[0].rules[1:]
    rules = Table(
        "How often the paper's rule meets its target on evaluation (Beta-binomial law)",
        ("Target", "Misses allowed, search", "evaluation", "Target met", *(item.rule for item in others)),
        tuple(
            (
                whole_percent(row.target),
                f"{row.rules[0].search_misses}",
                f"{row.allowed}",
                percent(row.rules[0].chance_met, 0),
                *(_feasible(item) for item in row.rules[1:]),
            )
            for row in reach.targets
        ),
        "The last columns: the rules with a promise about the miss rate, and the search positives they need.",
    )
    allowed = [f"{row.allowed} misses ({whole_percent(row.target)})" for row in reach.targets]
    bounds = [{at.dismissal: at.bound for at in row.bounds} for row in reach.targets]
    by_dismissal = Table(
        f"Bound at {confidence(reach.delta)} confidence by dismissal and by the cancers among the dismissed",
        ("Dismissal", "Dismissed", "no miss", *allowed),
        tuple(
            (
                whole_percent(at.dismissal),
                f"{at.dismissed:,}",
                percent(at.bound),
                *(percent(column.get(at.dismissal)) for column in bounds),
            )
            for at in reach.bounds
        ),
    )
    return rules, by_dismissal


def _feasible(outlook: RuleOutlook) -> str:
    if outlook.needed is None:
        return "impossible"
    if outlook.search_misses is None:
        return f"infeasible, needs {outlook.needed}"
    return f"feasible (needs {outlook.needed})"
