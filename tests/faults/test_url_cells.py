"""A manifest's path opens no URL unless the user allows it, and then only those of known schemes."""

import csv
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from trust_cache.clinic.incoming_cases import read_case_list
from trust_cache.images.image_failures import FAILURES
from trust_cache.images.preprocess import preprocess

HEADER = "image_id,case_id,label,laterality,projection,path\n"


class Site:
    """A web server of a folder on the loopback, and the requests that it got."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[str] = []
        site = self

        class Handler(SimpleHTTPRequestHandler):
            def log_request(self, *_: object) -> None:
                site.requests.append(self.path)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def dicom(manifest: Path) -> Path:
    return max(manifest.parent.rglob("*.dcm"), key=lambda path: path.stat().st_size)


@pytest.fixture
def site(dicom: Path) -> Iterator[Site]:
    made = Site(dicom.parent)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def cells(tmp_path: Path, site: Site, dicom: Path) -> Path:
    """A manifest with one local file, and URLs that must not be opened or cannot be."""
    places = {
        "local": str(dicom),
        "web": f"{site.url}/{dicom.name}",
        "file": dicom.as_uri(),
        "zip": f"zip://{dicom.name}::{site.url}/a.zip",
        "chain": f"{site.url}/{dicom.name}::file:///etc/hostname",
        "data": "data://text/plain;base64",
        "ftp": "ftp://127.0.0.1:9/x",
        "python": "python://os/system",
        "silent": "http://127.0.0.1:9/x.dcm",
        "user": f"http://user:word@{site.url.removeprefix('http://')}/x",
    }
    path = tmp_path / "manifest.csv"
    path.write_text(HEADER + "".join(f"{name},{name},0,L,CC,{cell}\n" for name, cell in places.items()))
    return path


def reasons(out: Path, name: str = FAILURES) -> dict[str, str]:
    with (out / name).open() as file:
        return {row["image_id"]: row["reason"] for row in csv.DictReader(file)}


def test_preprocess_opens_no_url_unless_allowed(run: Run, cells: Path, site: Site, tmp_path: Path) -> None:
    out = tmp_path / "png"
    done = run("preprocess", cells, "--out", out, "--workers", 1)
    assert (done.code, site.requests) == (1, [])
    found = reasons(out)
    assert len(found) == 9
    assert "local" not in found
    assert all("--allow-urls" in reason for reason in found.values())
    done = run("preprocess", cells, "--out", out, "--workers", 1, "--allow-urls")
    assert done.code == 1
    assert set(site.requests) == {f"/{Path(cells.read_text().splitlines()[1]).name}"}
    found = reasons(out)
    assert set(found) == {"zip", "chain", "data", "ftp", "python", "silent", "user"}
    assert all("found a URL of" in found[name] for name in ("zip", "data", "ftp", "python"))
    assert "one place" in found["chain"]
    assert "does not answer" in found["silent"]
    assert "without credentials" in found["user"]


def test_extract_opens_no_url_unless_allowed(run: Run, cells: Path, site: Site, tmp_path: Path) -> None:
    assert run("preprocess", cells, "--out", tmp_path / "png", "--workers", 1).code == 1
    url = f"{site.url}/local.png"
    picture = tmp_path / "cells.csv"  # beside no record of preprocess, which has these rows without a path
    local = tmp_path / "png" / "local.png"
    rows = f"local,local,0,L,CC,{local}\nweb,web,1,L,CC,{url}\nftp,ftp,0,L,CC,ftp://127.0.0.1:9/x\n"
    picture.write_text(HEADER + rows)
    words = ["extract", picture, "--weights", "random", "--encoder", "resnet10t", "--image-size", "64x64"]
    for more, expected in (([], "--allow-urls"), (["--allow-urls"], "found a URL of ftp")):
        cache = tmp_path / f"cache{len(more)}.zarr"
        assert run(*words, "--views", 0, "--device", "cpu", "--out", cache, *more).code == 1
        found = reasons(cache)
        assert expected in found["ftp"]
        assert ("--allow-urls" in found["web"]) is not bool(more)
        assert bool(site.requests) is bool(more)


def test_a_manifest_behind_a_url_may_name_files_beside_it(site: Site, dicom: Path, tmp_path: Path) -> None:
    beside = dicom.parent / "beside.csv"
    beside.write_text(f"{HEADER}a,a,0,L,CC,{dicom.name}\nb,b,0,L,CC,x::{site.url}/b.dcm\n")
    try:
        for start in (site.url, dicom.parent.as_uri()):
            done = preprocess(f"{start}/beside.csv", tmp_path / start[:4], workers=1)
            assert [failure.image_id for failure in done.failures] == ["b"]
    finally:
        beside.unlink()
    assert "/b.dcm" not in site.requests


def test_triage_opens_no_url(cells: Path) -> None:
    found = {case.case_id: case.images[0] for case in read_case_list(cells).cases}
    assert found.pop("local").problem is None
    assert len(found) == 9
    assert all("a URL" in str(image.problem) and not image.location for image in found.values())
