"""A CSV file with the manifest's own column names, as users make it for their own data."""

from functools import partial

from trust_cache.manifest.datasets.dataset import Dataset
from trust_cache.manifest.manifest_checks import WARNINGS, files_distinct, lateralities_present, paths_present
from trust_cache.manifest.manifest_file import OPTIONAL_COLUMNS, REQUIRED_COLUMNS, read_manifest_columns


def dataset() -> Dataset:
    """Return the data set."""
    return Dataset(
        required=REQUIRED_COLUMNS,
        optional=OPTIONAL_COLUMNS,
        read=partial(read_manifest_columns, ages=("age", "Age")),
        warnings=(lateralities_present, paths_present, files_distinct, *WARNINGS),
    )
