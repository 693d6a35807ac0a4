"""Files by path and by URL behave alike; what a store cannot do is a sentence."""

import json
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError
from zarr.errors import MetadataValidationError

from trust_cache.base import places
from trust_cache.base.errors import InputError, StoppedError


@pytest.fixture(params=["path", "file", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "path": str(tmp_path / "folder"),
        "file": f"file://{tmp_path}/folder",
        "memory": f"memory://{tmp_path.name}/folder",
    }[request.param]


def test_written_read_listed_removed(folder: str) -> None:
    assert places.list_names(folder) == set()
    for content in (b"one", b"other"):
        places.write_bytes(places.join(folder, "a name.png"), content)
        assert places.read_bytes(places.join(folder, "a name.png")) == content
    places.write_bytes(places.join(folder, "below/b"), b"")
    assert places.list_names(folder) == {"a name.png", "below"}
    with pytest.raises(FileNotFoundError):
        places.read_bytes(places.join(folder, "absent"))
    for _ in range(2):  # what is not there is no error
        places.remove_file(places.join(folder, "a name.png"))
        assert places.list_names(folder) == {"below"}


def test_absolute_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert places.absolute("a/b") == str(tmp_path / "a" / "b")
    for place in ("/a/b", "s3://bucket/b", ""):
        assert places.absolute(place) == place


def test_unknown_protocols_and_missing_packages() -> None:
    for place in ("zz9://x/y", "ftp://host/x", "data://text/plain,x", "python://x", "github://a:b@x/y"):
        with pytest.raises(
            InputError, match=r"expected a (path or a URL of s3.*found|URL without credentials)"
        ):
            places.read_bytes(place)
    for place in ("zip://a.dcm::http://host/x", "http://host/x::file:///x", "s3://b/x::http://host/"):
        with pytest.raises(InputError, match=r"found a URL of zip|expected the URL of one place"):
            places.read_bytes(place)
    places.refuse_place("http://[::1]:80/x")
    with pytest.raises(InputError, match="not a place that can be opened"):
        places.read_bytes("s3://")
    with pytest.raises(InputError, match="pip install"):  # adlfs is not among the extras
        places.read_bytes("abfs://container/x")


@pytest.mark.parametrize(
    ("raised", "expected", "words"),
    [
        (PermissionError("Forbidden"), InputError, "refuses access.*credentials"),
        (type("NoCredentialsError", (Exception,), {})("none"), InputError, "credentials"),
        (ConnectionResetError("reset"), StoppedError, "does not answer.*Run the same command again"),
        (type("EndpointConnectionError", (Exception,), {})("no route"), StoppedError, "does not answer"),
    ],
)
def test_answers_in_words(raised: Exception, expected: type[Exception], words: str) -> None:
    with pytest.raises(expected, match=words), places.answers_in_words("s3://bucket/x"):
        raise raised


@pytest.mark.parametrize(
    ("error", "of_a_store"),
    [
        (PermissionError("Forbidden"), True),
        (TimeoutError(), True),
        (ImportError("Install s3fs"), True),
        (EndpointConnectionError(endpoint_url="http://host"), True),
        (FileNotFoundError("key"), False),
        (ValueError("damaged"), False),
        (json.JSONDecodeError("damaged", "", 0), False),
        (MetadataValidationError("damaged"), False),
    ],
)
def test_errors_of_a_store(error: Exception, of_a_store: bool) -> None:
    assert places.is_of_a_store(error) is of_a_store


SENTINEL = "Sentinel/8f2c"


@pytest.mark.parametrize(
    "place",
    [
        f"http://user:{SENTINEL}@host/x",
        f"https://user:{SENTINEL.replace('/', '')}@host:8080/x",
        f"s3://key:{SENTINEL}@bucket/x",
        f"abfs://account:{SENTINEL}@host/x",
        f"http:/user:{SENTINEL}@host/x",  # what a path object makes of it
        f"https://host/x?X-Amz-Date=1&X-Amz-Signature={SENTINEL}",
        f"https://host/x?sig={SENTINEL}&sv=1",
        f"https://{SENTINEL.replace('/', '')}@host/x",
    ],
)
def test_credentials_in_urls_are_refused_and_hidden(place: str) -> None:
    with pytest.raises(InputError, match=r"without credentials.*environment") as refused:
        places.refuse_credentials(place)
    shown = str(refused.value)
    assert "***" in shown
    assert "host" in shown or "bucket" in shown
    assert "entinel" not in shown
    assert "8f2c" not in shown
    with pytest.raises(InputError, match="without credentials"):  # hiding does not make it valid
        places.refuse_credentials(places.redacted_urls(place))
    assert places.redacted_urls(shown) == shown


@pytest.mark.parametrize(
    "place",
    [
        "s3://bucket/a@b:c@d", "http://host:8080/a@b", "https://host/x?download=1", "/data/a:b@c",
        "abfs://container@account.dfs.core.windows.net/x", "http://[::1]:80/a@b", "C:/x@y", "a@b",
    ],
)  # fmt: skip
def test_other_places_stay_as_they_are(place: str) -> None:
    places.refuse_credentials(place)
    assert places.redacted(place) == place


def test_secrets_of_the_environment_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SENTINEL)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "short")
    for raised in (PermissionError, ConnectionResetError, ValueError):
        with (
            pytest.raises((InputError, StoppedError)) as found,
            places.answers_in_words("s3://bucket/x"),
        ):
            raise raised(f"a short word and {SENTINEL}")
        assert "short word and ***" in str(found.value)
