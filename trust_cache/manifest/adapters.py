"""All adapters by name, and which of them some metadata are meant for."""

from collections.abc import Callable, Sequence

from trust_cache.base.errors import InputError
from trust_cache.manifest.adapter import Adapter
from trust_cache.manifest.nlbs import nlbs_adapter
from trust_cache.manifest.plain import plain_adapter
from trust_cache.manifest.requirements import columns_present
from trust_cache.manifest.rsna import rsna_adapter
from trust_cache.manifest.verbatim import Metadata, separator_hint

_ADAPTERS: dict[str, Callable[[], Adapter]] = {
    "rsna": rsna_adapter,
    "nlbs": nlbs_adapter,
    "csv": plain_adapter,
}
ADAPTERS = tuple(_ADAPTERS)


def adapter_for(name: str, metadata: Metadata) -> Adapter:
    """Return the adapter of that name if the metadata have its columns, else say which one fits."""
    if name not in _ADAPTERS:
        raise InputError(f"kind of metadata: expected one of {', '.join(ADAPTERS)}, found {name!r}")
    adapter = _ADAPTERS[name]()
    header = metadata.table.columns
    for error in columns_present(header, adapter.required):
        raise InputError(f"{metadata.source}: {error.sentence}{_hint(name, header)}")
    return adapter


def fitting_adapters(header: Sequence[str]) -> list[str]:
    """Return the names of the adapters whose columns are all in the header."""
    return [name for name, make in _ADAPTERS.items() if not columns_present(header, make().required)]


def _hint(name: str, header: Sequence[str]) -> str:
    fitting = fitting_adapters(header)
    if fitting:
        return f". These are the columns of another kind: use `trust-cache manifest {fitting[0]}`"
    if name == "rsna" and "patient_id" in header and "cancer" not in header:
        return ". RSNA's test.csv has no labels: use train.csv"
    return separator_hint(header)
