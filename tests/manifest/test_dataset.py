"""Descriptions of the public data sets: found and complete."""

import pytest

from trust_cache.base.errors import InputError
from trust_cache.manifest.datasets.dataset import describe_dataset


def test_published_counts() -> None:
    nlbs, rsna = describe_dataset("nlbs").counts, describe_dataset("rsna").counts
    assert (nlbs.images, nlbs.cases, nlbs.positive_cases, nlbs.positive_images) == (26_988, 5_997, 149, 337)
    assert (rsna.images, rsna.cases, rsna.positive_cases, rsna.positive_images) == (
        54_706,
        11_913,
        486,
        1_158,
    )


def test_unknown_data_set_names_the_known() -> None:
    with pytest.raises(InputError, match=r"csaw-cc, .*nlbs, rsna"):
        describe_dataset("inbreast")
