"""The registry of data sets: one entry for each, with the options that only it has.

Importing it is quick: the module of a data set is imported when the data set is loaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from trust_cache.base.errors import InputError

if TYPE_CHECKING:
    from trust_cache.manifest.datasets.dataset import Dataset


@dataclass(frozen=True)
class DatasetOption:
    """An option of one data set, such as `--label-horizon`; `needed` says why it must be given."""

    name: str
    choices: tuple[str, ...]
    help: str
    default: str | None = None
    needed: str = ""

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return f"--{self.name.replace('_', '-')}"

    def check(self, value: str | None) -> str | None:
        """Return the value, or the default; refuse a value that is no choice."""
        if value is None and self.needed:
            raise InputError(
                f"{self.flag}: expected {' or '.join(self.choices)}, found nothing; {self.needed}"
            )
        if value is not None and value not in self.choices:
            raise InputError(f"{self.flag}: expected {' or '.join(self.choices)}, found {value!r}")
        return self.default if value is None else value


LABEL_HORIZON = DatasetOption(
    "label_horizon",
    ("screen", "screen+interval"),
    "Which cancers make a case positive: found by this screening, or also interval cancers.",
    default="screen",
)


@dataclass(frozen=True)
class KnownDataset:
    """A data set as `trust-cache manifest <name>` offers it; the function `dataset` of `module` makes it."""

    name: str
    module: str
    help: str
    metadata_help: str
    examples: tuple[str, ...]  # what follows `trust-cache manifest <name>`
    images_required: bool = True  # else the images are by default in the folder of the metadata
    options: tuple[DatasetOption, ...] = ()  # arguments of the function `dataset`

    def load(self, given: Mapping[str, str | None] | None = None) -> "Dataset":
        """Import the data set's module and return the data set with these options."""
        made: Dataset = import_module(f"{__package__}.{self.module}").dataset(**(given or {}))
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
        "embed",
        "embed",
        "Build a manifest from EMBED's two tables; a case is an accession, DIR has the folders cohort_N.",
        "EMBED_OpenData_metadata.csv and EMBED_OpenData_clinical.csv, in any order.",
        (
            "EMBED_OpenData_metadata.csv EMBED_OpenData_clinical.csv --images embed/ --severity5 negative"
            " --out manifest.csv --no-files",
        ),
        options=(
            LABEL_HORIZON,
            DatasetOption(
                "severity5",
                ("negative", "cancer", "leave-out"),
                "What path_severity 5 means; required where it occurs, because EMBED's documents disagree.",
            ),
        ),
    ),
    KnownDataset(
        "csaw-cc",
        "csaw_cc",
        "Build a manifest from CSAW-CC's table; a case is one year of a patient, the files are in DIR.",
        "CSAW-CC_breast_cancer_screening_data.csv as downloaded.",
        (
            "CSAW-CC.csv --images csaw/ --out manifest.csv --no-files",
            "CSAW-CC.csv --images csaw/ --label-horizon screen+interval --out manifest.csv --no-files",
        ),
        options=(LABEL_HORIZON,),
    ),
    KnownDataset(
        "cmmd",
        "cmmd",
        "Build a manifest from TCIA's and CMMD's tables; sides and projections come from the files' headers.",
        "TCIA's metadata.csv and CMMD_clinicaldata_revision.xlsx (or .csv), in any order.",
        ("metadata.csv CMMD_clinicaldata_revision.xlsx --images cmmd/ --out manifest.csv",),
    ),
    KnownDataset(
        "vindr",
        "vindr",
        "Build a manifest from VinDr-Mammo's breast-level annotations; DIR has the folder images.",
        "breast-level_annotations.csv as downloaded.",
        ("breast-level_annotations.csv --images vindr/ --birads 4 --out manifest.csv --no-files",),
        options=(
            DatasetOption(
                "birads",
                ("4",),
                "Count breasts of BI-RADS 4 and 5 as positive. [required]",
                needed="there is no pathology, so BI-RADS 4 or 5 stands in for cancer only if you say so",
            ),
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


def find_dataset(name: str, options: Mapping[str, str | None] | None = None) -> "Dataset":
    """Return the data set of this name with these options."""
    for known in KNOWN_DATASETS:
        if known.name == name:
            own = {option.name: option for option in known.options}
            given = options or {}
            for word in given:
                if word not in own:
                    has = f"it has {', '.join(own)}" if own else "it has none"
                    raise InputError(f"{name}: expected an option of this data set ({has}), found {word}")
            return known.load({word: option.check(given.get(word)) for word, option in own.items()})
    names = ", ".join(known.name for known in KNOWN_DATASETS)
    raise InputError(f"kind of metadata: expected one of {names}, found {name!r}")


def fitting_datasets(header: Sequence[str]) -> list[str]:
    """Return the names of the data sets whose required columns are all in the header."""
    return [known.name for known in KNOWN_DATASETS if set(known.load().required) <= set(header)]
