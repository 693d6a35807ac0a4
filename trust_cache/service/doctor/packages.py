"""The libraries: which are there, in which version, which device and decoders they bring."""

import importlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version

from trust_cache.service.doctor.findings import Finding, good

EXTRACT = "pip install 'trust-cache[extract]'"
CLUSTER = "pip install 'trust-cache[cluster]'"
_MENDS = {"": "pip install --force-reinstall trust-cache", "extract": EXTRACT, "cluster": CLUSTER}


def package_findings(required: list[str] | None = None) -> list[Finding]:
    """Say which libraries are installed; those of an extra that is missing come with its command."""
    findings = []
    for requirement in requires("trust-cache") or [] if required is None else required:
        name, extra = _parts(requirement)
        if extra == "dev":
            continue
        topic = f"libraries [{extra}]" if extra else "libraries"
        found = installed_version(name)
        if found is None:
            findings.append(Finding(topic, name, "missing", "not installed", _MENDS[extra]))
        else:
            findings.append(good(topic, name, found))
    return findings


def installed_version(name: str) -> str | None:
    """Return the version of a package, None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def device_findings(import_module: Callable[[str], object] = importlib.import_module) -> list[Finding]:
    """Say which devices torch sees, by asking it; without torch there is nothing to extract with."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        found = f"torch cannot be imported ({error}): stage two works, extraction does not"
        return [Finding("devices", "torch", "missing", found, EXTRACT)]
    findings = [good("devices", "cpu", f"torch {torch.__version__}, {torch.get_num_threads()} threads")]  # type: ignore[attr-defined]
    cuda = torch.cuda  # type: ignore[attr-defined]
    if not cuda.is_available():
        built = getattr(torch.version, "cuda", None)  # type: ignore[attr-defined]
        mend = (
            "install or update the NVIDIA driver, if there is such a card"
            if built
            else "install a CUDA build of torch, if there is such a card: https://pytorch.org/get-started"
        )
        return [*findings, Finding("devices", "cuda", "note", "no CUDA device", mend)]
    for number in range(cuda.device_count()):
        memory = cuda.get_device_properties(number).total_memory
        findings.append(
            good("devices", f"cuda:{number}", f"{cuda.get_device_name(number)}, {memory / 1e9:.1f} GB")
        )
    return findings


def decoder_findings(import_module: Callable[[str], object] = importlib.import_module) -> list[Finding]:
    """Say for every transfer syntax whether its decoder works here."""
    try:
        decode = import_module("trust_cache.images.decode")
    except ImportError as error:
        found = f"DICOM files cannot be read ({error})"
        return [Finding("decoders", "all transfer syntaxes", "missing", found, EXTRACT)]
    findings = []
    for state in decode.decoder_states():  # type: ignore[attr-defined]
        if state.works:
            findings.append(good("decoders", state.syntax, f"{state.package} {state.version}"))
        else:
            mend = f"pip install {state.package}"
            found = f"{state.package} {state.version or 'is not installed'}"
            findings.append(Finding("decoders", state.syntax, "missing", found, mend))
    return findings


def _parts(requirement: str) -> tuple[str, str]:
    """Return the name and the extra of a requirement as a package's metadata write it."""
    specification, _, marker = requirement.partition(";")
    name = specification.strip()
    for stop in "<>=!~ [(":
        name = name.split(stop)[0]
    _, _, extra = marker.partition("extra ==")
    return name, extra.strip().strip("'\" )")
