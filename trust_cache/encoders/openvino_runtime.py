"""Run an encoder with OpenVINO on a processor: convert it once, keep it, and send nothing to anybody."""

import hashlib
import logging
import os
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor

from trust_cache.base.digests import bind_bytes, canonical_json, unbind_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import claim_private, kernel_folder, write_durably
from trust_cache.encoders.encoder import EncoderIdentity, FrozenEncoder
from trust_cache.encoders.known_runtimes import OPENVINO

_LOG = logging.getLogger(__name__)
_TELEMETRY = "openvino_telemetry"
_FOLDER = "openvino"  # of what is kept, beside the compiled kernels
_MODEL, _FEATURES = ".model", ".features"
_KEPT = 6  # files of each kind; a model is as large as its weights
_LAYOUT = 2  # of a kept file


class OpenVinoEncoder:
    """An encoder compiled for one size of images. It runs views one by one.

    A view's features therefore do not depend on its neighbours, and the last batch of a shard needs no shape
    of its own. On processors a batch is not faster.
    """

    def __init__(self, compiled: Any, identity: EncoderIdentity, key: list[Any], *, kept: bool) -> None:
        self.identity = identity
        self._request = compiled.create_infer_request()
        self._key = key  # all that features depend on besides the view
        self._is_kept = kept  # not converted at this start

    def __call__(self, views: Tensor) -> Tensor:
        """Return one row of features per view."""
        recipe = self.identity.recipe
        expected = (recipe.channels, *recipe.image_size)
        if tuple(views.shape[1:]) != expected:
            raise InputError(f"images: expected views of {expected}, found {tuple(views.shape[1:])}")
        features = np.empty((views.shape[0], self.identity.dim), dtype=np.float32)
        for row, view in zip(features, views, strict=True):
            self._request.infer([np.ascontiguousarray(view.numpy())[None]])
            row[...] = self._request.get_output_tensor(0).data[0]
        return torch.from_numpy(features)

    def encode_once(self, views: Tensor) -> Tensor:
        """Return the features of views that every start encodes; they are kept beside the compiled model.

        Features of another conversion are not used: it may have been made for other instructions.
        """
        kept = _keep_in_home(_FEATURES, [*self._key, blake3(views.numpy().tobytes()).hexdigest()])
        content = kept.read() if kept is not None and self._is_kept else None
        if content is not None:
            return torch.from_numpy(np.frombuffer(content, np.float32).reshape(len(views), -1).copy())
        features = self(views)
        if kept is not None:
            kept.write(features.numpy().tobytes())
        return features


def load_openvino(
    identity: EncoderIdentity, load: Callable[[], FrozenEncoder], threads: int
) -> OpenVinoEncoder:
    """Return an encoder in OpenVINO. `load` builds it in torch; it is called only if no model was kept."""
    openvino = import_openvino()
    core = openvino.Core()
    settings = {
        # Without this a processor with bfloat16 computes in it: features are then 2 % off.
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,  # several processes would all run on the first cores
    }
    key = _key(openvino, core, identity)
    kept = _keep_in_home(_MODEL, key)
    content = None if kept is None else kept.read()
    imported = None if content is None else _import_model(core, content, settings)
    compiled = imported
    if compiled is None:
        _LOG.warning("converting %s for OpenVINO, once: up to half a minute", identity.encoder)
        compiled = core.compile_model(_converted(openvino, load(), identity), "CPU", settings)
        if kept is not None:
            kept.write(compiled.export_model().getvalue())
    return OpenVinoEncoder(compiled, identity, [*key, threads], kept=imported is not None)


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry, which writes files and sends messages at import and conversion.

    Its package is declared absent; OpenVINO then uses its own stub, which does nothing. Where another part of
    the program has imported OpenVINO before, the telemetry's consent is withdrawn for this process.
    """
    problem = OPENVINO.problem
    if problem is not None:
        raise InputError(f"runtime openvino: {problem}")
    active: Any = sys.modules.get(_TELEMETRY)
    if active is None:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # an import of it fails from now on
    else:
        active.Telemetry.consent = property(lambda _self: False, lambda _self, _value: None)
    try:
        import openvino  # noqa: PLC0415 - an extra, and after the lines above
    except (ImportError, OSError) as error:  # OSError: a library of the system is missing
        raise InputError(
            f"runtime openvino: it is installed but cannot be imported ({error}); install it again, or use"
            " --runtime torch"
        ) from error
    return openvino


def _converted(openvino: Any, encoder: FrozenEncoder, identity: EncoderIdentity) -> Any:
    """Return the network as a model of OpenVINO, for one image of the recipe's size."""
    shape = [1, identity.recipe.channels, *identity.recipe.image_size]
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns of shapes that become constants: here they are
        try:
            return openvino.convert_model(encoder.network, example_input=torch.zeros(shape), input=shape)
        except Exception as error:  # each network fails in its own way
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise InputError(
                f"encoder {identity.encoder!r}: OpenVINO cannot convert it ({reason}); use --runtime torch"
            ) from error


def _key(openvino: Any, core: Any, identity: EncoderIdentity) -> list[Any]:
    """Return all that the compiled model depends on, besides the number of threads."""
    return [
        *(_LAYOUT, identity.encoder, identity.weights_sha256, identity.dim, identity.recipe.text),
        *(openvino.get_version(), torch.__version__, _version("timm"), _version("transformers")),
        _code_sha256(),
        *(core.get_property("CPU", "FULL_DEVICE_NAME"), platform.machine()),
        sorted(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")),  # virtual processors share a name
    ]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _code_sha256() -> str:
    """Return the digest of this package, which builds the networks."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _import_model(core: Any, content: bytes, settings: dict[str, Any]) -> Any | None:
    """Return a compiled model that was exported; None where another build of OpenVINO refuses it."""
    try:
        return core.import_model(content, "CPU", settings)
    except RuntimeError as error:
        _LOG.info("the kept encoder cannot be used (%s); it is converted again", error)
        return None


@dataclass(frozen=True)
class _KeptFile:
    """A file of results that take long to compute, bound to all that they depend on."""

    path: Path
    key: list[Any]

    def read(self) -> bytes | None:
        """Return the content; None if there is none or it is damaged."""
        try:
            content = unbind_bytes(self.path.read_bytes(), *self.key)
            if content is None:
                _LOG.info("%s: damaged; it is made again", self.path)
            else:
                os.utime(self.path)  # the least recently used is removed first
        except FileNotFoundError:
            return None
        except OSError as error:
            _LOG.info("%s: cannot be used (%s); it is made again", self.path, error)
            return None
        return content

    def write(self, content: bytes) -> None:
        """Keep the content, and no more than the last few of its kind; failing to costs only time."""
        try:
            write_durably(self.path, [bind_bytes(content, *self.key)], private=True)
            same_kind = self.path.parent.glob(f"*{self.path.suffix}")
            kept = sorted(same_kind, key=lambda path: path.stat().st_mtime)
            for path in kept[:-_KEPT]:
                path.unlink(missing_ok=True)
        except OSError as error:
            _LOG.info("%s: cannot be kept (%s)", self.path, error)


def _keep_in_home(suffix: str, key: list[Any]) -> _KeptFile | None:
    """Return the file of one kind for a key; None if no folder is safe for it."""
    folder = "the home folder"
    try:
        folder = str(kernel_folder() / _FOLDER)
        claim_private(Path(folder))
    except (OSError, RuntimeError) as error:  # a RuntimeError where the user has no home
        _LOG.info("%s cannot be used (%s): nothing is kept for the next start", folder, error)
        return None
    return _KeptFile(Path(folder) / f"{hashlib.sha256(canonical_json(key)).hexdigest()[:32]}{suffix}", key)
