"""Small files that declare or unpack to huge ones, and pickles: refused in bounded memory, and nothing runs.

Each is read by a process with a limit on its address space, which also tells how much memory it took.
"""

import ast
import io
import json
import pickle
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless

import trust_cache
from tests.cache.material import some_features, write_cache
from tests.faults.test_hostile_files import Planted, edit, manifest_of
from tests.images.made import dataset, mammogram, save

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")

MOST_BYTES = 2**28  # beyond what the process takes before it reads the file
READ = """
import json, resource, sys
from pathlib import Path
from trust_cache.base.errors import TrustCacheError
kind, place, out = sys.argv[1:]
def read():
    if kind == "cache":
        from trust_cache.cache.verify_cache import verify_cache
        return [problem.sentence for problem in verify_cache(place)]
    if kind == "array":
        from trust_cache.cache.exchange.import_features import import_features
        return import_features(Path(place), Path(place).with_name("manifest.csv"), out)
    if kind == "png":
        from trust_cache.images.png_files import read_grey_png
        return read_grey_png(place)
    if kind == "dicom":
        from trust_cache.images.picture import process_image
        return process_image(place, "L")
    if kind == "checkpoint":
        from trust_cache.encoders.convert_weights import convert_weights
        return convert_weights(Path(place), Path(out))
    from trust_cache.clinic.model_folder import read_model
    return read_model(Path(place))
import trust_cache.cache.verify_cache, trust_cache.cache.copy_cache, trust_cache.images.png_files
import trust_cache.images.picture, trust_cache.encoders.convert_weights, trust_cache.clinic.model_folder
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))
try:
    found = read()
    said = found if isinstance(found, list) else ["accepted"]
except TrustCacheError as error:
    said = [str(error)]
print(json.dumps([said, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)]))
"""


def huge_zarr(place: Path) -> Path:
    cache = place / "cache.zarr"
    write_cache(cache, some_features(10))

    def enlarge(found: dict[str, list[int]]) -> None:
        found["shape"] = [2**40, *found["shape"][1:]]

    for name in ("features", "marks", "manifest/image_id", "manifest/label"):
        edit(cache / name / "zarr.json", enlarge)
    return cache


def wide_zarr(place: Path) -> Path:
    cache = place / "cache.zarr"
    write_cache(cache, some_features(10))
    edit(cache / "features" / "zarr.json", lambda found: found.update(shape=[10, 2**20, 2**20]))
    return cache


def _hdf5(place: Path, name: str, shape: tuple[int, ...]) -> Path:
    """A cache one of whose arrays is declared huge: chunks that were never written take no room."""
    cache = place / "cache.h5"
    write_cache(cache, some_features(10))
    with h5py.File(cache, "r+") as file:
        kind = file[name].dtype
        attributes = dict(file[name].attrs)
        del file[name]
        node = file.create_dataset(name, shape, kind, chunks=tuple(min(side, 64) for side in shape))
        node.attrs.update(attributes)
    return cache


def huge_hdf5(place: Path) -> Path:
    return _hdf5(place, "features", (2**40, 3, 8))


def wide_hdf5(place: Path) -> Path:
    return _hdf5(place, "features", (10, 2**20, 2**20))


def huge_marks(place: Path) -> Path:
    return _hdf5(place, "marks", (2**32, 164))


def huge_column(place: Path) -> Path:
    return _hdf5(place, "manifest/label", (2**33,))


def references(place: Path) -> Path:
    cache = place / "cache.h5"
    write_cache(cache, some_features(10))
    with h5py.File(cache, "r+") as file:
        del file["manifest/label"]
        node = file.create_dataset("manifest/label", (10,), h5py.ref_dtype)
        node[0] = file["features"].ref
    return cache


def zip_bomb(place: Path) -> Path:
    """A gigabyte of zeros behind an honest header, and a header that lies about a small array."""
    manifest_of(place, ("a",))
    header = io.BytesIO()
    shape = {"descr": "<f2", "fortran_order": False, "shape": (1, 2**29)}
    np.lib.format.write_array_header_1_0(header, shape)
    with (
        zipfile.ZipFile(place / "f.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("features.npy", "w", force_zip64=True) as member,
    ):
        member.write(header.getvalue())
        for _ in range(2**4):
            member.write(bytes(2**20))
    return place / "f.npz"


def pickled_array(place: Path) -> Path:
    manifest_of(place, ("a",))
    np.save(place / "f.npy", np.array([[Planted(place / "ran")]], dtype=object))
    return place / "f.npy"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)


def _png(place: Path, width: int, height: int, bits: int) -> Path:
    squeeze, content = zlib.compressobj(9), b""
    for _ in range(2**5):
        content += squeeze.compress(bytes(2**24))
    header = width.to_bytes(4) + height.to_bytes(4) + bytes([bits, 0, 0, 0, 0])
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", content + squeeze.flush()) + _chunk(b"IEND", b"")
    (place / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    return place / "bomb.png"


def huge_png(place: Path) -> Path:
    return _png(place, 2**30, 2**30, 16)


def overfull_png(place: Path) -> Path:
    """Small by its header, with half a gigabyte of pixels behind it."""
    return _png(place, 64, 64, 16)


def huge_jpeg_2000(place: Path) -> Path:
    """A code stream whose SIZ marker declares 2^31 pixels each way, in a header of a usual size."""
    side = (2**31 - 1).to_bytes(4)
    size = b"\x00\x00" + side * 2 + bytes(8) + side * 2 + bytes(8) + b"\x00\x01" + b"\x0b\x01\x01"
    style = b"\xff\x52\x00\x0c\x00\x00\x00\x01\x00\x05\x04\x04\x00\x01"
    quantity = b"\xff\x5c\x00\x13\x40" + bytes(16)
    stream = b"\xff\x4f\xff\x51" + (len(size) + 2).to_bytes(2) + size + style + quantity
    stream += b"\xff\x90\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x01\xff\x93" + bytes(64) + b"\xff\xd9"
    header = dataset(mammogram())
    header.file_meta.TransferSyntaxUID = JPEG2000Lossless
    header.PixelData = encapsulate([stream])
    header["PixelData"].VR = "OB"
    header["PixelData"].is_undefined_length = True
    return save(header, place / "bomb.dcm")


def pickled_checkpoint(place: Path) -> Path:
    (place / "weights.tar").write_bytes(pickle.dumps(Planted(place / "ran")))
    return place / "weights.tar"


def pickled_model(place: Path) -> Path:
    (place / "model").mkdir()
    for name in ("model.json", "head.safetensors", "trained_on.safetensors", "reference.csv"):
        (place / "model" / name).write_bytes(pickle.dumps(Planted(place / "ran")))
    return place / "model"


BOMBS: dict[str, list[Callable[[Path], Path]]] = {
    "cache": [huge_zarr, wide_zarr, huge_hdf5, wide_hdf5, huge_marks, huge_column, references],
    "array": [zip_bomb, pickled_array],
    "png": [huge_png, overfull_png],
    "dicom": [huge_jpeg_2000],
    "checkpoint": [pickled_checkpoint],
    "model": [pickled_model],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "make"),
    [(kind, make) for kind, makes in BOMBS.items() for make in makes],
    ids=lambda item: getattr(item, "__name__", item),
)
def test_a_bomb_is_refused_in_bounded_memory(kind: str, make: Callable[[Path], Path], tmp_path: Path) -> None:
    place = make(tmp_path)
    words = [sys.executable, "-c", READ, kind, str(place), str(tmp_path / "out.zarr")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2_000:]
    said, taken = json.loads(done.stdout.splitlines()[-1])
    assert said
    assert said != ["accepted"]
    assert all(sentence.strip() for sentence in said)
    assert taken < MOST_BYTES, (taken, said)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out.zarr").exists()


LOADERS = {  # calls that unpickle, and the argument without which they must not be made
    "load": {"np": ("allow_pickle", False), "torch": ("weights_only", True), "joblib": None, "pickle": None},
    "loads": {"pickle": None, "marshal": None, "dill": None, "cloudpickle": None},
    "Unpickler": {"pickle": None},
    "read_pickle": {"pd": None, "pandas": None},
}


def test_every_call_that_could_unpickle_forbids_it() -> None:
    """The loaders of numpy, torch, joblib, pandas and pickle, wherever the library calls them."""
    found = []
    for path in Path(str(trust_cache.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if owner not in LOADERS.get(node.func.attr, {}):
                continue
            needed = LOADERS[node.func.attr][owner]
            assert needed is not None, f"{path}: line {node.lineno}: {owner}.{node.func.attr}"
            name, value = needed
            given = {word.arg: word.value for word in node.keywords}
            assert isinstance(given.get(name), ast.Constant), f"{path}: line {node.lineno}: no {name}"
            assert given[name].value is value, f"{path}: line {node.lineno}"  # type: ignore[attr-defined]
            found.append(f"{owner}.{node.func.attr}")
    assert sorted(found) == ["np.load", "torch.load"]
