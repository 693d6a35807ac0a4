"""The command plan: what a bound needs, what a cohort can reach."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, say, show_json, show_table

if TYPE_CHECKING:
    from trust_cache.certificate.plan import Need, Reach

EXAMPLES = """
**Examples**

    trust-cache plan --bound 0.01 --dismissal 0.2 --misses 2

    trust-cache plan --cases 5997 --positives 149
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(plan)


def plan(
    bound: Annotated[float | None, typer.Option(metavar="B", help="The bound wanted, a fraction.")] = None,
    dismissal: Annotated[
        float | None, typer.Option(metavar="D", help="The share expected to be dismissed.")
    ] = None,
    misses: Annotated[
        int | None, typer.Option(metavar="K", help="The cancers expected among the dismissed. [0]")
    ] = None,
    cases: Annotated[int | None, typer.Option(metavar="N", help="The cohort's cases.")] = None,
    positives: Annotated[int | None, typer.Option(metavar="C", help="The cohort's positive cases.")] = None,
    target: Annotated[
        list[float] | None,
        typer.Option(metavar="R", help="A recall target; may be repeated. [0.98 and 0.95]"),
    ] = None,
    delta: Annotated[float, typer.Option(help="One minus the confidence of the bounds.")] = 0.01,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Say how many cases a bound needs, or what a cohort can reach and how often.

    Either --bound and --dismissal (and --misses), or --cases and --positives.
    """
    from trust_cache.certificate.plan import DISMISSALS, plan_cases, plan_reach

    if cases is not None and positives is not None and bound is None and misses is None:
        reach = plan_reach(
            cases=cases,
            positives=positives,
            targets=tuple(target or (0.98, 0.95)),
            delta=delta,
            dismissals=DISMISSALS if dismissal is None else (dismissal,),
        )
        show_json(asdict(reach)) if json else _show_reach(reach)
    elif bound is not None and dismissal is not None and (cases, positives, target) == (None,) * 3:
        need = plan_cases(bound=bound, dismissal=dismissal, misses=misses or 0, delta=delta)
        show_json(asdict(need)) if json else _show_need(need)
    else:
        raise InputError(
            "plan: expected either --bound and --dismissal (with --misses), or --cases and --positives"
            " (with --target and --dismissal)"
        )


def _show_need(need: "Need") -> None:
    from trust_cache.base.text_tables import confidence, whole_percent

    say(
        console(),
        f"A bound of {whole_percent(need.bound)} at {confidence(need.delta)} confidence with"
        f" {need.misses} cancers among the dismissed needs {need.dismissed:,} dismissed cases."
        f" At a dismissal of {whole_percent(need.dismissal)} that is {need.evaluation_cases:,} evaluation"
        f" cases, {need.cases:,} cases with the 20 % for the search of the threshold.",
    )


def _show_reach(reach: "Reach") -> None:
    from trust_cache.base.text_tables import Table, percent, whole_percent
    from trust_cache.certificate.tables import bound_name

    screen = console()
    say(
        screen,
        f"{reach.cases:,} cases with {reach.positives:,} positive: search"
        f" {reach.search_cases:,} ({reach.search_positives:,}), evaluation"
        f" {reach.evaluation_cases:,} ({reach.evaluation_positives:,})."
        f" On search, recall moves in steps of {percent(reach.recall_step)}."
        f" No model can have a bound below {percent(reach.best_bound, 4)}"
        " (every negative dismissed, no positive).\n",
    )
    show_table(screen, Table(
        "How often the paper's rule meets its target on evaluation (Beta-binomial law)",
        ("Target", "Misses allowed, search", "evaluation", "Target met", "crc", "ltt"),
        tuple(
            (
                whole_percent(row.target),
                f"{row.search_misses}",
                f"{row.allowed}",
                percent(row.chance_met, 0),
                _feasible(row.crc_feasible, row.crc_needs),
                _feasible(row.ltt_feasible, row.ltt_needs),
            )
            for row in reach.targets
        ),
        "crc, ltt: the rules with a guarantee on the miss rate, and the search positives they need.",
    ))  # fmt: skip
    allowed = [f"{row.allowed} misses ({whole_percent(row.target)})" for row in reach.targets]
    bounds = [{at.dismissal: at.bound for at in row.bounds} for row in reach.targets]
    show_table(screen, Table(
        f"{bound_name(reach.delta)} by the share dismissed and the cancers among them",
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
    ))  # fmt: skip


def _feasible(feasible: bool, needs: int | None) -> str:
    if needs is None:
        return "impossible"
    return f"feasible (needs {needs})" if feasible else f"infeasible, needs {needs}"
