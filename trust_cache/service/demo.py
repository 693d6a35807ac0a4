"""The demonstration: synthetic scores in the shape of NLBS, certified and verified for real."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import expit

from trust_cache.base.files import write_folder
from trust_cache.certificate.certify import Certification, certify
from trust_cache.certificate.folder import write_certification
from trust_cache.certificate.verify import Verification, verify
from trust_cache.manifest.descriptions import describe_data_set

IMAGES_PER_CASE = 4  # two breasts, two projections
POSITIVE_IMAGES = 2  # both projections of one breast
SPREAD_OF_IMAGES = 0.35  # around their case's own level
CONFIGURATIONS = {"weaker": 1.0, "stronger": 1.6}  # how far cancers lie above the other images


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration made."""

    scores: Path
    certified: Path
    certification: Certification
    verification: Verification


def run_demo(out: Path, seed: int = 0) -> Demonstration:
    """Make synthetic scores, certify them and verify a certificate of theirs."""
    folder = out / "scores"
    write_folder(folder, {"scores.csv": synthetic_scores(seed).write_csv().encode()}, own={"scores.csv"})
    scores, certified = folder / "scores.csv", out / "certified"
    certification = certify(scores, seed=seed, by="site", prevalence=0.005, resplits=200)
    write_certification(certification, certified)
    certificate = min((certified / "certificates").iterdir())
    return Demonstration(scores, certified, certification, verify(certificate, scores))


def synthetic_scores(seed: int) -> pl.DataFrame:
    """Return image scores of an invented cohort with as many cases and positives as NLBS."""
    expected = describe_data_set("nlbs").expected
    generator = np.random.Generator(np.random.PCG64(seed))
    case = np.repeat(np.arange(expected.cases), IMAGES_PER_CASE)
    image = np.tile(np.arange(IMAGES_PER_CASE), expected.cases)
    label = ((case < expected.positive_cases) & (image < POSITIVE_IMAGES)).astype(np.int64)
    level = generator.standard_normal(expected.cases)[case]
    tables = []
    for name, shift in CONFIGURATIONS.items():
        latent = level + SPREAD_OF_IMAGES * generator.standard_normal(case.size) + shift * label
        tables.append(
            pl.DataFrame(
                {
                    "configuration": name,
                    "case_id": [f"p_{number:04d}" for number in case],
                    "image_id": [f"p_{a:04d}/{b}" for a, b in zip(case, image, strict=True)],
                    "label": label,
                    "score": expit(latent - 2.0),
                    "site": [f"site {number % 3 + 1}" for number in case],
                }
            )
        )
    return pl.concat(tables)
