"""Files that mean harm: refused with a reason, nothing of them runs, nothing is written elsewhere."""

import io
import json
import pickle
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from zarr.core.metadata import v3

from tests.cache.material import some_features, write_cache
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.exchange.import_features import import_features
from trust_cache.cache.known_stores import open_store
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.cache.zarr_store import ZarrStore
from trust_cache.images.dicom_file import MOST_INFLATED, read_dataset
from trust_cache.images.folders.folder_cases import scan_folder
from trust_cache.images.image_failures import ImageError
from trust_cache.images.preprocess import preprocess

IDS = (
    "../../escaped",
    "/escaped",
    "..",
    "a/../../escaped",
    "C:\\escaped",
    "\\\\server\\share",
    "nul\u2028",
    "x" * 180,
)


def manifest_of(folder: Path, ids: tuple[str, ...]) -> Path:
    rows = "".join(f'"{name}",{n},0,L,CC,absent.dcm\n' for n, name in enumerate(ids))
    path = folder / "manifest.csv"
    path.write_text(f"image_id,case_id,label,laterality,projection,path\n{rows}", encoding="utf-8")
    return path


def test_ids_stay_in_the_output_folder(manifest: Path, tmp_path: Path) -> None:
    source = max(manifest.parent.rglob("*.dcm"), key=lambda path: path.stat().st_size)
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    path = manifest_of(inside, IDS)
    path.write_text(path.read_text(encoding="utf-8").replace("absent.dcm", str(source)), encoding="utf-8")
    done = preprocess(path, inside / "png", workers=1)
    assert not done.failures
    assert len(list((inside / "png").glob("*.png"))) == len(IDS)
    everything = {found for found in tmp_path.rglob("*") if found.is_file()}
    assert all(found.parent in (inside, inside / "png") for found in everything)


@pytest.mark.parametrize("part", ["features/c.1.0.0", "marks/c.1.0", "features", "zarr.json"])
def test_links_in_a_zarr_cache(tmp_path: Path, part: str) -> None:
    cache = tmp_path / "cache.zarr"
    write_cache(cache, some_features(10))
    elsewhere = tmp_path / "elsewhere"
    (cache / part).rename(elsewhere)
    (cache / part).symlink_to(elsewhere)
    assert [problem.kind for problem in verify_cache(cache)] == ["link"]
    with pytest.raises(InputError, match="is a link; a cache holds files only"):
        open_cache(cache)


def deflated(path: Path, dataset: Iterable[bytes]) -> None:
    """Write a DICOM file whose data set is these bytes, deflated."""
    squeeze = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    uid = b"1.2.840.10008.1.2.1.99"
    meta = b"\x02\x00\x10\x00UI" + len(uid).to_bytes(2, "little") + uid
    group = b"\x02\x00\x00\x00UL\x04\x00" + len(meta).to_bytes(4, "little")
    with path.open("wb") as file:
        file.write(bytes(128) + b"DICM" + group + meta)
        file.writelines(squeeze.compress(part) for part in dataset)
        file.write(squeeze.flush())


@pytest.mark.parametrize("cut", [0, 1])
def test_a_deflated_bomb_takes_little_memory(tmp_path: Path, cut: int) -> None:
    """One long element, whole or truncated, through triage's scan and through `preprocess`'s reader."""
    path = tmp_path / "bomb.dcm"
    element = b"\x08\x00\x08\x00OB\x00\x00" + (2 * MOST_INFLATED).to_bytes(4, "little")
    deflated(path, chain([element], repeat(bytes(2**24), 2 * MOST_INFLATED >> 24)))
    path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    try:
        (case,) = scan_folder(tmp_path).cases
        with pytest.raises(ImageError, match="the deflated data set has more than 268,435,456 bytes"):
            read_dataset(path)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    assert "more than 268,435,456 bytes" in str(case.images[0].problem)


def test_a_deflated_image_of_a_usual_size_is_read(tmp_path: Path) -> None:
    rows = b"\x28\x00\x10\x00US\x02\x00\x07\x00"
    filler = b"\x29\x00\x10\x10OB\x00\x00" + (2**22).to_bytes(4, "little") + bytes(2**22)
    deflated(tmp_path / "whole.dcm", [rows, filler])
    assert read_dataset(tmp_path / "whole.dcm").Rows == 7


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("array", ["features", "marks", "manifest/image_id"])
@pytest.mark.parametrize("inner", [False, True])
def test_codecs_that_a_cache_does_not_use(
    tmp_path: Path, array: str, inner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache.zarr"
    write_cache(cache, some_features(10))
    looked_up: list[str] = []
    look_up = v3.get_codec_class
    monkeypatch.setattr(v3, "get_codec_class", lambda name: looked_up.append(name) or look_up(name))
    hostile = {"name": "numcodecs.pickle", "configuration": {}}
    shard = {"name": "sharding_indexed", "configuration": {"codecs": [hostile], "index_codecs": []}}
    edit(cache / array / "zarr.json", lambda found: found["codecs"].append(shard if inner else hostile))
    with pytest.raises(InputError, match=rf"{array}: expected the codecs bytes.*found 'numcodecs.pickle'"):
        read_all(cache)
    assert "numcodecs.pickle" not in looked_up
    assert array == "features" or "bytes" in looked_up  # the names are seen where they are looked up


def test_consolidated_metadata_do_not_replace_what_was_checked(tmp_path: Path) -> None:
    cache, features = tmp_path / "cache.zarr", some_features(10)
    write_cache(cache, features)
    described = json.loads((cache / "features" / "zarr.json").read_text())
    described["codecs"] = [{"name": "numcodecs.pickle"}]
    consolidated = {"kind": "inline", "must_understand": False, "metadata": {"features": described}}
    edit(cache / "zarr.json", lambda found: found.update(consolidated_metadata=consolidated))
    read_all(cache)


class Planted:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("url", [False, True])
def test_version_2_of_zarr_is_refused_by_name(tmp_path: Path, url: bool) -> None:
    cache = tmp_path / "cache.zarr"
    (cache / "features").mkdir(parents=True)
    (cache / ".zgroup").write_text('{"zarr_format": 2}')
    (cache / ".zattrs").write_text('{"trust-cache": {}}')
    described = {
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "compressor": None, "fill_value": None,
        "order": "C", "filters": [{"id": "pickle", "protocol": 5}],
    }  # fmt: skip
    (cache / "features" / ".zarray").write_text(json.dumps(described))
    (cache / "features" / "0").write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    with pytest.raises(
        InputError, match=r"expected Zarr version 3 \(zarr.json\), found version 2 \(.zattrs\)"
    ):
        open_cache(cache.as_uri() if url else cache)
    assert not (tmp_path / "ran").exists()


def read_all(cache: Path) -> None:
    opened = open_store(cache)
    opened.read_columns()
    ZarrStore.read_marks(opened)  # type: ignore[arg-type]  # a Zarr cache
    opened.read_shard(0, np.empty((4, 3, 8), dtype=np.float16))


@pytest.mark.parametrize("how", ["external link", "soft link", "external storage", "virtual"])
def test_links_in_an_hdf5_cache(tmp_path: Path, how: str) -> None:
    cache = tmp_path / "cache.h5"
    write_cache(cache, some_features(10))
    (tmp_path / "elsewhere.bin").write_bytes(bytes(10 * 3 * 8 * 2))
    with h5py.File(cache, "r+") as file:
        shape = file["features"].shape
        file.move("features", "hidden")
        if how == "external link":
            file["features"] = h5py.ExternalLink("other.h5", "/features")
        elif how == "soft link":
            file["features"] = h5py.SoftLink("/hidden")
        elif how == "virtual":
            layout = h5py.VirtualLayout(shape=shape, dtype="<f2")
            layout[:] = h5py.VirtualSource("other.h5", "features", shape=shape)
            file.create_virtual_dataset("features", layout)
        else:
            outside = [(str(tmp_path / "elsewhere.bin"), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset("features", shape, "<f2", external=outside)
    with pytest.raises(InputError):
        open_cache(cache)
    (problem,) = verify_cache(cache)
    assert problem.sentence


def test_pickles_in_arrays_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (eval, (f"__import__('pathlib').Path({str(mark)!r}).touch()",))

    manifest = manifest_of(tmp_path, ("a",))
    for name, save in (("f.npy", np.save), ("f.npz", lambda path, array: np.savez(path, features=array))):
        save(tmp_path / name, np.array([[Hostile()]], dtype=object))  # type: ignore[operator]
        with pytest.raises(InputError, match="not a readable"):
            import_features(tmp_path / name, manifest, tmp_path / "cache.zarr")
    assert not mark.exists()
    assert not (tmp_path / "cache.zarr").exists()


@pytest.mark.parametrize("shape", [(1, 1 << 40), (1 << 40, 8), (1, 1 << 30, 1 << 30)])
def test_an_array_that_says_it_is_huge_is_not_unpacked(tmp_path: Path, shape: tuple[int, ...]) -> None:
    header = io.BytesIO()
    described = {"descr": "<f2", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    with zipfile.ZipFile(tmp_path / "f.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", header.getvalue() + bytes(1 << 20))
    with pytest.raises(InputError, match="expected"):
        import_features(tmp_path / "f.npz", manifest_of(tmp_path, ("a",)), tmp_path / "cache.zarr")
