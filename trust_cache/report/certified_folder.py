"""A certified/ folder read back: its very points, split and certificates, checked against the scores."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.certificate.certify import Certification, certify
from trust_cache.certificate.folder import SCHEMA
from trust_cache.certificate.points import Point, SubgroupPoint
from trust_cache.certificate.resplits import Spread
from trust_cache.certificate.scores import Scores
from trust_cache.certificate.verify import read_certificate

_EXACT_TO = 1e-9  # relative: another scipy may differ in the last digits of a beta quantile


@dataclass(frozen=True)
class CertifiedFolder:
    """What a certified/ folder says, as it says it."""

    path: Path
    document: Mapping[str, Any]
    certificates: Mapping[tuple[str | None, float], bytes]

    @property
    def scores_sha256(self) -> str:
        """The digest of the scores that it certifies."""
        return str(self.document["scores_sha256"])

    def certification(self, scores: Scores) -> Certification:
        """Certify the scores by its settings and split, and return its own numbers if they agree."""
        settings = dict(self.document["settings"])
        again = certify(
            scores,
            targets=settings["targets"],
            delta=settings["delta"],
            seed=settings["seed"],
            split=self.path / "split.csv",
            by=settings["by"],
            prevalence=settings["prevalence"],
            rule=settings["rule"],
        )
        points = tuple(Point(**point) for point in self.document["points"])
        self._require_same(again, points)
        return replace(
            again,
            settings=replace(again.settings, resplits=settings["resplits"]),
            split=replace(again.split, chosen_by=str(self.document["split"])),
            points=points,
            subgroups=tuple(
                SubgroupPoint(item["column"], item["group"], _point(item))
                for item in self.document["subgroups"]
            ),
            spreads=tuple(Spread(**spread) for spread in self.document["resplits"]),
            warnings=tuple(self.document["warnings"]),
            versions=dict(self.document["versions"]),
        )

    def _require_same(self, again: Certification, stated: tuple[Point, ...]) -> None:
        if again.split.sha256 != self.document["split_sha256"]:
            raise InputError(f"{self.path}: split.csv is not the split of points.json; certify again")
        if len(stated) != len(again.points):
            raise InputError(
                f"{self.path}: points.json: expected {len(again.points)} points, found {len(stated)}"
            )
        for one, other in zip(stated, again.points, strict=True):
            recomputed = asdict(other)
            for key, value in asdict(one).items():
                if not _same(value, recomputed[key]):
                    raise InputError(
                        f"{self.path}: points.json: {one.configuration} at {one.target}: {key} is"
                        f" {value!r}, the scores and the split give {recomputed[key]!r}; certify again"
                    )


def read_certified(path: Path) -> CertifiedFolder:
    """Read the folder's document and its certificates."""
    file = path / "points.json"
    try:
        document = parse_json(file.read_bytes())
        schema = document["schema"]
        if schema != SCHEMA:
            raise InputError(f"{file}: expected schema {SCHEMA}, found {schema!r}; certify again")
        certificates = {}
        for certificate in sorted((path / "certificates").glob("*.json")):
            content = read_certificate(certificate)
            certificates[content["configuration"], float(content["target"])] = certificate.read_bytes()
        expected = {(point["configuration"], float(point["target"])) for point in document["points"]}
        _ = document["scores_sha256"], document["settings"], document["split"], document["limits"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable folder of certify ({error}); certify again") from error
    if expected != set(certificates):
        raise InputError(
            f"{path}: expected a certificate for each of its {len(expected)} points, found"
            f" {len(certificates)}; certify again"
        )
    return CertifiedFolder(path, document, certificates)


def _point(item: Mapping[str, Any]) -> Point:
    return Point(**{key: value for key, value in item.items() if key not in {"column", "group"}})


def _same(stated: object, recomputed: object) -> bool:
    if isinstance(stated, float) and isinstance(recomputed, float):
        return abs(stated - recomputed) <= _EXACT_TO * max(abs(stated), abs(recomputed))
    return stated == recomputed
