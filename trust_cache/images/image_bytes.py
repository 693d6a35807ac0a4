"""Read the bytes of images by path or URL; one that cannot be read is a failure of its image."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from trust_cache.base.digests import bytes_blake3, stream_blake3
from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.places import is_url, read_bytes
from trust_cache.images.image_failures import ImageError, refuse_if

_MOST_HELD = 2**27  # bytes of a file that are held in memory; those of mammograms have 10 to 60 million


def read_url(place: str) -> bytes:
    """Read an image behind a URL; a refused or impossible one is a failure of this image.

    A missing one stays FileNotFoundError. A store that does not answer stops the command; a web server that
    does not is a failure too, because a manifest's path may name any server.
    """
    try:
        return read_bytes(place)
    except InputError as error:
        raise ImageError("read", str(error).removeprefix(f"{place}: ")) from None
    except StoppedError:
        if not place.lower().startswith(("http://", "https://")):
            raise
        raise ImageError("read", "the web server does not answer") from None


def open_image(place: Path | str) -> BinaryIO:
    """Open a file by path or URL; one that cannot be opened is a failure of its image."""
    try:
        return BytesIO(read_url(str(place))) if is_url(place) else Path(place).open("rb")
    except FileNotFoundError:
        raise ImageError("read", "no such file") from None
    except ImageError:  # of a URL, in its own words
        raise
    except (OSError, ValueError) as error:  # no permission; a NUL in the name
        words = getattr(error, "strerror", None) or "input error"
        raise ImageError("read", f"the file cannot be read ({words})") from None


@contextmanager
def digested_image(place: Path | str) -> Iterator[tuple[BinaryIO, str]]:
    """Open a file by path or URL and yield it with the BLAKE3 digest of exactly the bytes that are read.

    They are read once. A file too large to hold is read again at the end, and refused if it has changed.
    """
    with open_image(place) as file, _unreadable():
        content = file.getvalue() if isinstance(file, BytesIO) else file.read(_MOST_HELD + 1)
        if len(content) <= _MOST_HELD or isinstance(file, BytesIO):
            yield BytesIO(content), bytes_blake3(content)
            return
        del content
        file.seek(0)
        digest = stream_blake3(file)
        file.seek(0)
        yield file, digest
        file.seek(0)
        refuse_if(stream_blake3(file) != digest, "read", "the file changed while it was read")


def image_digest(place: Path | str) -> str:
    """Return the BLAKE3 digest of a file, by path or URL, in bounded memory."""
    with open_image(place) as file, _unreadable():
        return stream_blake3(file)


@contextmanager
def _unreadable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ImageError("read", f"the file cannot be read ({error.strerror or 'input error'})") from None
