"""Features in arrays: an import holds what was given, an export what the cache holds."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.cache.material import a_manifest, differing_fields, some_features
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.exchange.import_features import import_features
from trust_cache.cache.extract.view_features import stored_features
from trust_cache.cache.feature_rows import load_rows
from trust_cache.cache.fingerprint import require_same_encoder


def save(folder: Path, features: np.ndarray, name: str = "f.npy", rows: int = 6) -> tuple[Path, Path]:
    path, manifest = folder / name, folder / "manifest.csv"
    if name.endswith(".npy"):
        np.save(path, features)
    else:
        np.savez(path, features=features)
    a_manifest(rows).drop("path").write_csv(manifest)
    return path, manifest


@pytest.mark.parametrize("name", ["f.npy", "f.npz"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(6, 8), (6, 3, 8)])
def test_import(out: Path, name: str, dtype: type, shape: tuple[int, ...]) -> None:
    features = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    cache = import_features(*save(out.parent, features, name), out, shard_images=4)
    np.testing.assert_array_equal(cache.features[:], features.astype(np.float16).reshape(6, -1, 8))
    assert cache.manifest["image_id"].to_list() == a_manifest(6)["image_id"].to_list()
    assert cache.manifest["Label"][0] == "007"
    assert cache.fingerprint.encoder == "imported"
    load_rows(cache)


def test_imported_caches_share_an_encoder_only_if_told_so(tmp_path: Path) -> None:
    one, two = (np.full((6, 8), value, dtype=np.float32) for value in (1, 2))
    caches = [
        import_features(*save(tmp_path, array), tmp_path / f"{number}.zarr", encoder=encoder)
        for number, (array, encoder) in enumerate([(one, None), (two, None), (one, "dino"), (two, "dino")])
    ]
    assert differing_fields(caches[0].fingerprint, caches[1].fingerprint) == (
        "weights_sha256",
        "view_settings",
    )
    require_same_encoder(caches[2].fingerprint, caches[3].fingerprint, "x")
    with pytest.raises(InputError, match="encoder"):
        require_same_encoder(caches[0].fingerprint, caches[2].fingerprint, "x")


@pytest.mark.parametrize("value", [np.nan, np.inf, 7e4])
def test_import_refuses_what_float16_cannot_hold(tmp_path: Path, value: float) -> None:
    features = np.zeros((6, 8))
    features[2, 3] = value
    with pytest.raises(InputError, match=r"1 images are NaN, infinite or beyond .* \(ünï-2-漢字\)"):
        import_features(*save(tmp_path, features), tmp_path / "c.zarr")
    assert not (tmp_path / "c.zarr").exists()


def test_import_refuses_other_files(tmp_path: Path) -> None:
    out = tmp_path / "c.zarr"
    with pytest.raises(InputError, match=r"expected features of 5 images, one for each row .* found 6"):
        import_features(*save(tmp_path, np.zeros((6, 8)), rows=5), out)
    with pytest.raises(InputError, match=r"found \(6,\)"):
        import_features(*save(tmp_path, np.zeros(6)), out)
    with pytest.raises(InputError, match="expected floating-point features, found int64"):
        import_features(*save(tmp_path, np.zeros((6, 8), dtype=np.int64)), out)
    path, manifest = save(tmp_path, np.zeros((6, 8)))
    np.save(path, np.array([{"a": 1}] * 6, dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="not a readable"):  # a pickle is never opened
        import_features(path, manifest, out)
    np.savez(tmp_path / "x.npz", other=np.zeros((6, 8)))
    with pytest.raises(InputError, match="expected an array 'features', found other"):
        import_features(tmp_path / "x.npz", manifest, out)
    (tmp_path / "y.npz").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(InputError, match="not a readable"):
        import_features(tmp_path / "y.npz", manifest, out)
    with pytest.raises(InputError, match="no such file"):
        import_features(tmp_path / "z.npy", manifest, out)
    assert open_cache(import_features(*save(tmp_path, np.zeros((6, 8))), out).source).images == 6


def test_the_ids_of_an_npz_file_decide_not_the_position(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((6, 2, 8)).astype(np.float16)
    _, manifest = save(tmp_path, features)
    ids = np.array(a_manifest(6)["image_id"].to_list())
    order = np.array([3, 0, 5, 1, 4, 2])
    path = tmp_path / "ids.npz"
    np.savez(path, features=features[order], image_id=ids[order])
    cache = import_features(path, manifest, tmp_path / "c.zarr")
    np.testing.assert_array_equal(cache.features[:], features)
    assert cache.manifest["image_id"].to_list() == ids.tolist()
    other = ids.astype("U20")
    other[[1, 4]] = "x", "y"
    wrong: list[tuple[np.ndarray, np.ndarray, str]] = [
        (features, other, rf"found 2 of .*manifest.csv alone \({ids[1]}, "),
        (np.concatenate([features, features[:1]]), np.append(ids, "more"), r"found 1 of .* alone \(more\)"),
        (features, ids[[0, 0, 1, 2, 3, 4]], f"expected one id for each image, found {ids[0]} twice"),
        (features[:5], ids, "expected features of 6 images, one for each id in its image_id, found 5"),
        (features, np.arange(10, 16), r"found 6 of .*manifest.csv alone"),
        (features, np.array(ids, dtype=object), "not a readable image_id"),
        (features, ids.reshape(6, 1), r"image_id as a list of texts, found .* of shape \(6, 1\)"),
    ]
    for array, names, said in wrong:
        np.savez(path, features=array, image_id=names)
        with pytest.raises(InputError, match=said):
            import_features(path, manifest, tmp_path / "d.zarr")


def test_minus_zero_changes_no_digest(tmp_path: Path) -> None:
    """From -0.0 itself, and from a negative number too small for float16; all else keeps its value."""
    zero = some_features(6)
    zero[2, 1, 3] = zero[4] = 0
    minus, tiny = zero.copy(), zero.astype(np.float32)
    minus[2, 1, 3] = minus[4] = -0.0
    tiny[2, 1, 3] = tiny[4] = -1e-12
    held = []
    for number, features in enumerate((zero, minus, tiny)):
        folder = tmp_path / str(number)
        folder.mkdir()
        cache = folder / "cache.zarr"
        import_features(*save(folder, features), cache, shard_images=4)
        held.append(np.asarray(open_cache(cache).features).tobytes())
        stored = stored_features(partial(np.array, features))
        np.testing.assert_array_equal(stored.view(np.uint16), zero.view(np.uint16))
    assert held[0] == held[1] == held[2]
