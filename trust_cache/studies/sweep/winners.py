"""The winners' certificates: each certified once, on the evaluation subset, from scores written beside it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trust_cache.base.versions import versions_of
from trust_cache.certificate.cohort import build_cohort
from trust_cache.certificate.folder import bind_point
from trust_cache.certificate.points import Point, choose_threshold, evaluate
from trust_cache.certificate.scores import check_scores
from trust_cache.certificate.split import Split
from trust_cache.heads.folds import FOLDS
from trust_cache.heads.preparation import Preparation
from trust_cache.heads.run_files import scores_table
from trust_cache.heads.settings import HeadSettings
from trust_cache.studies.sweep.assessment import Assessment, terms_of
from trust_cache.studies.sweep.catalogue import Bank, name_setting
from trust_cache.studies.sweep.record import Record
from trust_cache.studies.sweep.score_files import FoldScores, ScoreFiles

REPEAT = 0  # the one whose scores are certified; the others say how much of a result is training noise


@dataclass(frozen=True)
class Winner:
    """The setting that won at a target, what it did on search, and its one point on evaluation."""

    target: float
    setting: str
    settings: HeadSettings
    search_dismissal: float  # the mean over repeats
    point: Point
    certificate: dict[str, Any]
    scores: bytes  # the CSV that it was certified from

    @property
    def certificate_file(self) -> str:
        """Where its certificate stands in the sweep's folder."""
        return f"certificates/winner@{self.target!r}.json"

    @property
    def scores_file(self) -> str:
        """Where its scores stand in the sweep's folder."""
        return f"winner/scores@{self.target!r}.csv"


def certify_winner(
    record: Record,
    found: Assessment,
    work: Preparation,
    files: ScoreFiles,
    split: Split,
    target: float,
    name: str,
) -> Winner:
    """Certify the winner for one target."""
    bank, head = _locate(record, name)
    folds = [FoldScores(part.images, part.scores[[head]]) for part in files.read(bank, REPEAT)]
    table = scores_table(folds, work.cache.manifest, [name], [str(fold) for fold in range(FOLDS)])
    scores = check_scores(table, "the winner's scores")
    cohort = build_cohort(scores)
    terms = terms_of(record)
    point = evaluate(cohort, split.evaluation, 0, choose_threshold(cohort, split, 0, target, terms), terms)
    certificate = bind_point(point, terms.rule, scores, split, versions_of("numpy", "scipy", "polars"))
    counts = [found.outcomes[name, r, target].counts for r in range(work.settings.repeats)]
    return Winner(
        target=target,
        setting=name,
        settings=bank.settings[head],
        search_dismissal=sum(item.dismissed for item in counts) / sum(item.cases for item in counts),
        point=point,
        certificate={**certificate, "sweep": _origin(record, bank.settings[head])},
        scores=table.write_csv().encode(),
    )


def winners_toml(winners: Mapping[float, Winner]) -> bytes:
    """Return the winners as configurations that `fit-heads` takes."""
    lines = []
    for target, winner in winners.items():
        lines.append(f'["winner@{target!r}"]')
        for name, value in asdict(winner.settings).items():
            if value is not None:
                lines.append(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value!r}")
        lines.append("")
    return "\n".join(lines).encode()


def _origin(record: Record, settings: HeadSettings) -> dict[str, Any]:
    """Say what the winner was chosen from, so that its certificate cannot be taken for a single head's."""
    return {
        "settings": len(record.settings),
        "targets": len(record.identity["targets"]),
        "looks": len(record.looks),
        "repeats": record.identity["repeats"],
        "evaluation_shown_before": record.looks[-1].after_showing,
        "values": asdict(settings),
    }


def _locate(record: Record, name: str) -> tuple[Bank, int]:
    for bank in record.banks:
        for head, settings in enumerate(bank.settings):
            if name_setting(settings) == name:
                return bank, head
    raise LookupError(name)
