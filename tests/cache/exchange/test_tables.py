"""Features in tables: what other programs write is read, what is written they read, and nothing is lost."""

import io
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from polars.testing import assert_frame_equal

import trust_cache as tc
from tests.cache.material import FINGERPRINT, a_manifest, some_features, write_cache
from tests.cache.test_damage import flip, place_of
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache, failed_warning, open_cache, read_failures
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.exchange.export_features import export_features
from trust_cache.cache.exchange.import_features import import_features
from trust_cache.cache.verify_cache import verify_cache

IMAGES, VIEWS, DIM = 23, 3, 8
TABLES = (".parquet", ".arrow", ".feather")


def cache_with_failures(out: Path, failed: tuple[int, ...] = (5, 20), **columns: pl.Expr) -> Cache:
    features, present = some_features(IMAGES, VIEWS, DIM), np.ones(IMAGES, dtype=np.bool_)
    present[list(failed)] = False
    with create_cache(out, a_manifest(IMAGES).with_columns(**columns), VIEWS, DIM, FINGERPRINT, 4) as writer:
        for shard in range(writer.layout.shards):
            images = slice(*writer.layout.bounds(shard))
            writer.write_shard(shard, features[images], present[images])
    return open_cache(out)


def assert_same(one: Cache, other: Cache) -> None:
    np.testing.assert_array_equal(one.features[:].view(np.uint16), other.features[:].view(np.uint16))
    np.testing.assert_array_equal(one.failed, other.failed)
    assert_frame_equal(one.manifest, other.manifest)


@pytest.mark.parametrize("suffix", [*TABLES, ".npy", ".npz"])
def test_out_and_in_again_is_equal(tmp_path: Path, suffix: str) -> None:
    """Failed images, ids with zeros and slashes, and a manifest whose columns have the table's own names."""
    columns = {"view": pl.lit("CC"), "features": pl.col("image_id")}
    cache = cache_with_failures(tmp_path / "a.zarr", **columns)
    out = tmp_path / f"features{suffix}"
    made = export_features(cache, out)
    assert (made.images, made.views, made.dim, made.failed) == (IMAGES, VIEWS, DIM, 2)
    again = import_features(out, made.manifest, tmp_path / "b.h5")
    assert_same(again, cache)
    assert verify_cache(tmp_path / "b.h5") == []
    assert [row.reason for row in read_failures(again.source)] == ["imported without features"] * 2
    assert "2 of 23 images" in str(failed_warning(again))
    clean = export_features(tmp_path / "a.zarr", out, views=0)  # replaces the file
    again = import_features(out, clean.manifest, tmp_path / "c.zarr")
    np.testing.assert_array_equal(again.features[:], cache.features[:, :1])
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert left - {made.manifest and made.manifest.name} == {
        "a.zarr",
        "b.h5",
        "b.h5.failures.csv",
        "c.zarr",
        out.name,
    }


def test_other_programs_read_what_is_written(tmp_path: Path) -> None:
    cache = cache_with_failures(tmp_path / "a.zarr")
    expected = np.where(cache.failed[:, None, None], np.nan, cache.features[:].astype(np.float32))
    for suffix in TABLES:
        out = tmp_path / f"x{suffix}"
        tc.export_features(cache, out)
        table = pa.parquet.read_table(out) if suffix == ".parquet" else pa.feather.read_table(out)
        kind = table.schema.field("features").type
        assert (kind.list_size, kind.value_type) == (DIM, pa.float32())
        frame = table.to_pandas()
        assert frame["image_id"].tolist() == np.repeat(cache.manifest["image_id"].to_list(), VIEWS).tolist()
        assert frame["view"].tolist() == list(range(VIEWS)) * IMAGES
        assert frame["label"].tolist() == np.repeat(cache.manifest["label"].to_list(), VIEWS).tolist()
        failed = frame["features"].isna()
        assert failed.tolist() == np.repeat(cache.failed, VIEWS).tolist()
        np.testing.assert_array_equal(
            np.stack(frame["features"][~failed]), expected[~cache.failed].reshape(-1, DIM)
        )


def numbered(features: NDArray[np.floating], start: str) -> dict[str, NDArray[np.floating]]:
    return {f"{start}{number}": features[:, number] for number in range(features.shape[1])}


def as_stream(table: pa.Table, path: Path) -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(sink.getvalue())


WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    "parquet": lambda table, path: pa.parquet.write_table(table, path, row_group_size=3),
    "feather lz4": lambda table, path: pa.feather.write_feather(table, str(path), compression="lz4"),
    "stream": as_stream,
    "pandas": lambda table, path: table.to_pandas().to_parquet(path),
    "polars": lambda table, path: pl.DataFrame(table).write_parquet(path),
}


@pytest.mark.parametrize("writer", list(WRITERS))
@pytest.mark.parametrize("shape", ["list", "fixed", "large", "numbered", "from one"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_whatever_other_programs_write_is_read(tmp_path: Path, writer: str, shape: str, kind: type) -> None:
    """Rows in any order, one view, and images that the manifest does not have."""
    features = some_features(9, 1, DIM)[:, 0]
    order = np.random.default_rng(0).permutation(9)
    columns: dict[str, object] = {"image_id": [a_manifest(9)["image_id"][int(row)] for row in order]}
    rows = features[order].astype(kind)
    value = pa.from_numpy_dtype(np.dtype(kind))
    lists = {"list": pa.list_(value), "fixed": pa.list_(value, DIM), "large": pa.large_list(value)}
    if shape in lists:
        columns["features"] = pa.array(list(rows), type=lists[shape])
    else:
        names = numbered(rows, "f_" if shape == "numbered" else "")
        columns |= names if shape == "numbered" else {str(int(name) + 1): names[name] for name in names}
    WRITERS[writer](pa.table(columns), tmp_path / "features")
    a_manifest(7).write_csv(tmp_path / "manifest.csv")
    cache = import_features(
        tmp_path / "features", tmp_path / "manifest.csv", tmp_path / "c.zarr", encoder="x"
    )
    np.testing.assert_array_equal(cache.features[:, 0], features[:7])
    assert cache.fingerprint.encoder == "imported x"


@settings(max_examples=20)
@given(data=st.data())
def test_any_order_of_rows_gives_the_same_cache(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("order")
    failed = data.draw(st.sets(st.integers(0, 5), max_size=5))
    order = data.draw(st.permutations(range(12)))
    features = some_features(6, 2, 3).astype(np.float32)
    rows = [
        {"image_id": f"00{row // 2}", "view": row % 2, "features": None if row // 2 in failed else cells}
        for row, cells in enumerate(features.reshape(12, 3).tolist())
    ]
    table = pl.DataFrame(rows, schema_overrides={"features": pl.List(pl.Float32)})[list(order)]
    manifest = pl.DataFrame({"image_id": [f"00{n}" for n in range(6)], "case_id": list("aabbcc"), "label": 0})
    cache = import_features(table, manifest, folder / "c.zarr", shard_images=4)
    assert cache.failed.tolist() == [number in failed for number in range(6)]
    kept = [number for number in range(6) if number not in failed]
    np.testing.assert_array_equal(cache.features[kept], features[kept].astype(np.float16))


def test_data_frames_of_any_kind_and_their_own_manifest(tmp_path: Path) -> None:
    """pandas, polars and Arrow; the manifest from the table itself; rows that are left out are counted."""
    cache = cache_with_failures(tmp_path / "a.zarr")
    export_features(cache, tmp_path / "x.parquet")
    for number, table in enumerate(
        (
            pd.read_parquet(tmp_path / "x.parquet"),
            pl.read_parquet(tmp_path / "x.parquet"),
            pa.parquet.read_table(tmp_path / "x.parquet"),
        )
    ):
        assert_same(tc.import_features(table, None, tmp_path / f"{number}.zarr"), cache)
    with pytest.raises(InputError, match="missing column case_id, label"):
        tc.import_features(
            pl.DataFrame({"image_id": ["a"], "features": [[1.0]]}), None, tmp_path / "none.zarr"
        )


def test_rows_of_other_images_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = pl.DataFrame({"image_id": ["a", "b", "z"], "features": [[1.0], [2.0], [float("nan")]]})
    manifest = pl.DataFrame({"image_id": ["b", "a"], "case_id": ["1", "2"], "label": [0, 1]})
    with caplog.at_level(logging.WARNING):
        cache = import_features(table, manifest, tmp_path / "c.zarr")
    assert cache.features[:].tolist() == [[[2.0]], [[1.0]]]
    assert "1 rows of images that are not in the manifest are left out" in caplog.text


GOOD = {"image_id": ["007", "008"], "features": [[1.0, 2.0], [3.0, 4.0]]}
NOTHING = pl.Series([[], []], dtype=pl.List(pl.Float32))
TWO_VIEWS = {"image_id": ["007", "007", "008", "008"], "view": [0, 1, 0, 1], "features": [[1.0]] * 4}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"id": ["007"], "features": [[1.0]]}, r"expected a column image_id, found id, features"),
        (GOOD | {"image_id": ["007", "009"]}, r"a row for each of the 2 images .* none for 1 \(008\)"),
        (GOOD | {"image_id": [7, 8]}, "its ids are numbers, without leading zeros"),
        (GOOD | {"image_id": ["007", None]}, "expected a image_id in every row, found 1 empty"),
        ({name: cells + cells[:1] for name, cells in GOOD.items()}, r"image 007, view 0 twice"),
        (GOOD | {"features": [[1.0, 2.0], [3.0]]}, r"row 2: expected as many features .* \(2\), found 1"),
        (GOOD | {"features": NOTHING}, r"row 1: expected as many features .* found 0"),
        (GOOD | {"features": [[1.0, None], [1.0, 2.0]]}, r"features of 1 images are NaN, .*\(007\)"),
        (GOOD | {"features": [[1.0, 2.0], [1.0, float("inf")]]}, r"NaN, infinite or beyond .*\(008\)"),
        (GOOD | {"features": [[1, 2], [3, 4]]}, "expected floating-point features in features, found List"),
        (GOOD | {"features": [None, None]}, "expected a column of lists 'features', or one set of numbered"),
        (
            {"image_id": ["007", "008"], "embedding": [[1.0], [2.0]]},
            "found embedding; name the column .*--array",
        ),
        (
            {"image_id": ["007", "008"]} | {name: [1.0, 2.0] for name in ("a0", "a1", "b0", "b1")},
            r"found a0, a1, \.\.\., b0, b1, \.\.\.; name",
        ),
        (GOOD | {"view": ["CC", "MLO"]}, "expected numbers in the column view .* rename the column"),
        (TWO_VIEWS | {"view": [0, 1, 0, 2]}, r"image 007: expected the views 0 to 2, .* found 2 of them"),
        (TWO_VIEWS | {"view": [1, 2, 1, 2]}, "expected the views 0 to 2"),
        (
            TWO_VIEWS | {"features": [[1.0], None, [1.0], [1.0]]},
            "image 007: expected features of every view or",
        ),
        (
            GOOD | {"features": pl.Series([None, None], dtype=pl.List(pl.Float32))},
            "expected features, found none",
        ),
    ],
)
def test_tables_that_do_not_fit_are_refused(rows: dict[str, object], words: str, tmp_path: Path) -> None:
    pl.DataFrame({"image_id": ["007", "008"], "case_id": ["1", "2"], "label": [0, 1]}).write_csv(
        tmp_path / "manifest.csv"
    )
    pl.DataFrame(rows).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=words):
        import_features(tmp_path / "x.parquet", tmp_path / "manifest.csv", tmp_path / "c.zarr")
    assert not (tmp_path / "c.zarr").exists()


def test_a_length_that_changes_far_down_is_found(tmp_path: Path) -> None:
    """Beyond the rows that are read at once."""
    count = 3_000
    ids = [f"{number}" for number in range(count)]
    cells = [[1.0, 2.0]] * (count - 1) + [[1.0]]
    manifest = pl.DataFrame({"image_id": ids, "case_id": ids, "label": 0})
    table = pl.DataFrame({"image_id": ids, "features": cells})
    table.write_parquet(tmp_path / "x.parquet", row_group_size=100)
    for features in (table, tmp_path / "x.parquet"):
        with pytest.raises(InputError, match=r"row 3000: expected as many features .* \(2\), found 1"):
            import_features(features, manifest, tmp_path / "c.zarr")
    named = pl.DataFrame({"image_id": ids, "embedding": [[1.0]] * count})
    assert import_features(named, manifest, tmp_path / "c.zarr", array="embedding").images == count


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    manifest = pl.DataFrame({"image_id": ["a"], "case_id": ["1"], "label": [0]})
    file = tmp_path / "x.parquet"
    pl.DataFrame({"image_id": ["a"], "features": [[1.0]]}).write_parquet(file)
    whole = file.read_bytes()
    for content, words in (
        (whole[: len(whole) // 2], "not a readable Parquet or Arrow file"),
        (b"ARROW1\0\0 no more", "not a readable Parquet or Arrow file"),
        (b"FEA1 old", "expected a Feather file of version 2"),
        (b"image_id,features\n", "not a readable file of features"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=words):
            import_features(file, manifest, tmp_path / "c.zarr")
    with pytest.raises(InputError, match="no such file"):
        import_features(tmp_path / "none.parquet", manifest, tmp_path / "c.zarr")
    np.save(tmp_path / "x.npy", np.ones((1, 2)))
    with pytest.raises(InputError, match="expected a manifest with the features of an array"):
        import_features(tmp_path / "x.npy", None, tmp_path / "c.zarr")


def test_an_export_that_fails_leaves_the_earlier_file(tmp_path: Path) -> None:
    write_cache(tmp_path / "a.zarr", some_features(40))
    names = [tmp_path / f"x{suffix}" for suffix in (*TABLES, ".npy", ".npz")]
    for out in names:
        export_features(tmp_path / "a.zarr", out)
    before = [out.read_bytes() for out in names]
    file, offset = place_of(tmp_path / "a.zarr", 30)
    flip(file, offset)
    for out in names:
        with pytest.raises(InputError, match="does not fit its checksum"):
            export_features(tmp_path / "a.zarr", out)
    assert [out.read_bytes() for out in names] == before
    assert not list(tmp_path.glob("*.partial"))
    with pytest.raises(InputError, match=r"expected a file name that ends in \.parquet"):
        export_features(tmp_path / "a.zarr", tmp_path / "x.csv")
    with pytest.raises(InputError, match="expected at least 9 augmented views, found 2"):
        export_features(tmp_path / "a.zarr", tmp_path / "x.parquet", views=9)
    write_cache(tmp_path / "b.zarr", some_features(10), shards=[0])
    with pytest.raises(InputError, match="the cache is unfinished"):
        export_features(tmp_path / "b.zarr", tmp_path / "x.parquet")


SCRIPT = """
import resource, sys
from trust_cache.cache.exchange.export_features import export_features
from pathlib import Path
export_features(sys.argv[1], Path(sys.argv[2]), views=0)  # the libraries, and one view
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
export_features(sys.argv[1], Path(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_memory_does_not_grow_with_the_cache(tmp_path: Path) -> None:
    """150 MB of features, 300 MB as float32: the export needs a fraction of that."""
    features = np.ones((4_000, 9, 2_048), dtype=np.float16)
    write_cache(tmp_path / "a.zarr", features, shard_images=32)
    for suffix in (".parquet", ".arrow", ".npy"):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "a.zarr"), str(tmp_path / f"x{suffix}")]
        grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert grown < 120_000, suffix  # kilobytes


def test_the_terms_of_the_data_are_said_where_features_leave(tmp_path: Path) -> None:
    """EMBED forbids to pass features on, RSNA's terms are not recorded; own data are the user's own."""
    said = {}
    for name in ("embed", "rsna", None):
        cache = cache_with_failures(tmp_path / f"{name}.h5", dataset=pl.lit(name, pl.String))
        said[name] = export_features(cache, tmp_path / "features.npy").warnings
    assert ["do not pass this file on" in text for text in said["embed"]] == [True]
    assert ["before you pass this file on, read" in text for text in said["rsna"]] == [True]
    assert said[None] == ()
    assert export_features(cache_with_failures(tmp_path / "x.h5"), tmp_path / "x.npy").warnings == ()
