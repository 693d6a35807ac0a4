"""The registry of data sets: one line for each.

Importing it is quick: the module of a data set is imported when the data set is loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from trust_cache.base.errors import InputError

if TYPE_CHECKING:
    from trust_cache.manifest.datasets.dataset import Dataset


@dataclass(frozen=True)
class KnownDataset:
    """A data set as `trust-cache manifest <name>` offers it; the function `dataset` of `module` makes it."""

    name: str
    module: str
    help: str
    metadata_help: str
    examples: tuple[str, ...]  # what follows `trust-cache manifest <name>`
    images_required: bool = True  # else the images are by default in the folder of the metadata

    def load(self) -> "Dataset":
        """Import the data set's module and return the data set."""
        made: Dataset = import_module(f"{__package__}.{self.module}").dataset()
        return made


KNOWN_DATASETS = (
    KnownDataset(
        "rsna",
        "rsna",
        "Build a manifest from RSNA's train.csv; the files are DIR/patient_id/image_id.dcm.",
        "RSNA's train.csv as downloaded.",
        (
            "train.csv --images train_images/ --out manifest.csv",
            "train.csv --images s3://bucket/train_images --out manifest.csv",
        ),
    ),
    KnownDataset(
        "nlbs",
        "nlbs",
        "Build a manifest from NLBS's NLBSD_Metadata.csv; DIR has normal, False Positive, abnormal.",
        "NLBS's NLBSD_Metadata.csv as downloaded.",
        (
            "NLBSD_Metadata.csv --images NLBSD/ --out manifest.csv",
            "NLBSD_Metadata.csv --images /mnt/nlbs --out manifest.csv --no-files",
        ),
    ),
    KnownDataset(
        "csv",
        "plain_csv",
        "Build a manifest from your own CSV file.",
        "A CSV file with image_id, case_id, label (0/1) and, for images, laterality, projection, path.",
        ("images.csv --out manifest.csv", "images.csv --images dicoms/ --out manifest.csv --json"),
        images_required=False,
    ),
)


def find_dataset(name: str) -> "Dataset":
    """Return the data set of this name."""
    for known in KNOWN_DATASETS:
        if known.name == name:
            return known.load()
    names = ", ".join(known.name for known in KNOWN_DATASETS)
    raise InputError(f"kind of metadata: expected one of {names}, found {name!r}")


def fitting_datasets(header: Sequence[str]) -> list[str]:
    """Return the names of the data sets whose required columns are all in the header."""
    return [known.name for known in KNOWN_DATASETS if set(known.load().required) <= set(header)]
