"""Every compressed transfer syntax against a decoder by someone else, and damaged frames of each."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import imagecodecs
import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray
from pydicom import Dataset, dcmread
from pydicom import uid as uids
from pydicom.encaps import get_frame
from pydicom.pixels.decoders.base import get_decoder

from tests.images import made
from trust_cache.base.errors import InputError
from trust_cache.images.decoding import nvimagecodec
from trust_cache.images.decoding.decode import DECODERS, decode, decoder_states, require_decoder
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture_folder import ImageSettings

SETTINGS = ImageSettings()
FILES = Path(pydicom.__file__).parent / "data" / "test_files"
BY_GDCM = (
    *(uids.JPEGLossless, uids.JPEGLosslessSV1, uids.JPEGLSLossless, uids.JPEGLSNearLossless),
    *(uids.JPEG2000Lossless, uids.JPEG2000, uids.RLELossless),
)
BY_OPENJPH = (uids.HTJ2KLossless, uids.HTJ2KLosslessRPCL, uids.HTJ2K)
LOSSY = (uids.JPEGBaseline8Bit, uids.JPEGExtended12Bit)
Pixels = NDArray[Any]


def grey(bits: int, *, signed: bool = False, seed: int = 0) -> Pixels:
    pixels = made.mammogram(120, 90, bits=bits, seed=seed).astype(np.int32)
    return (pixels - (1 << (bits - 1)) * signed).astype(f"{'i' if signed else 'u'}{1 if bits == 8 else 2}")


def frame_of(ds: Dataset) -> bytes:
    return bytes(get_frame(ds.PixelData, 0, number_of_frames=1)).rstrip(b"\0")


def test_every_compressed_syntax_is_tested_here() -> None:
    compressed = {syntax for syntax in DECODERS if uids.UID(syntax).is_encapsulated}
    assert compressed == {*BY_GDCM, *BY_OPENJPH, *LOSSY}
    assert all(state.works for state in decoder_states())


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("bits", [8, 10, 12, 16])
@pytest.mark.parametrize("syntax", BY_GDCM, ids=lambda syntax: syntax.rsplit(".", 1)[-1])
def test_frames_by_gdcm(syntax: uids.UID, bits: int, *, signed: bool, tmp_path: Path) -> None:
    pixels = grey(bits, signed=signed)
    native = made.dataset(pixels, bits=bits, PixelRepresentation=int(signed))
    ds = made.compressed_by_gdcm(native, syntax, tmp_path)
    stored = decode(ds, SETTINGS)
    assert (stored.transfer_syntax, stored.bits, stored.warnings) == (syntax, bits, ())
    assert stored.decoder.split()[0] == DECODERS[syntax].package
    assert stored.pixels.dtype == pixels.dtype
    np.testing.assert_array_equal(stored.pixels, pixels)
    if syntax != uids.RLELossless:
        theirs, _ = get_decoder(syntax).as_array(ds, raw=True, index=0, decoding_plugin="gdcm")
        np.testing.assert_array_equal(stored.pixels, theirs)


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("syntax", BY_OPENJPH, ids=lambda syntax: syntax.rsplit(".", 1)[-1])
def test_high_throughput_jpeg_2000_against_openjph(syntax: uids.UID, bits: int) -> None:
    pixels = grey(bits)
    frame = imagecodecs.htj2k_encode(pixels, reversible=True)
    stored = decode(made.with_frame(made.dataset(pixels, bits=bits), syntax, frame), SETTINGS)
    np.testing.assert_array_equal(stored.pixels, pixels)
    np.testing.assert_array_equal(stored.pixels, imagecodecs.htj2k_decode(frame))


def test_lossy_frames_have_the_pixels_of_other_decoders(tmp_path: Path) -> None:
    near = grey(12)
    frame = imagecodecs.jpegls_encode(near, level=2)
    ds = made.with_frame(made.dataset(near), uids.JPEGLSNearLossless, frame)
    assert 0 < np.abs(decode(ds, SETTINGS).pixels.astype(int) - near).max() <= 2
    ds = made.compressed_by_gdcm(made.dataset(grey(8), bits=8), uids.JPEGBaseline8Bit, tmp_path)
    theirs, _ = get_decoder(uids.JPEGBaseline8Bit).as_array(ds, raw=True, index=0, decoding_plugin="gdcm")
    np.testing.assert_array_equal(decode(ds, SETTINGS).pixels, theirs)
    wavelets = imagecodecs.jpeg2k_encode(near, 45, codecformat="j2k", reversible=False, bitspersample=12)
    ds = made.with_frame(made.dataset(near), uids.JPEG2000, wavelets)
    theirs, _ = get_decoder(uids.JPEG2000).as_array(ds, raw=True, index=0, decoding_plugin="pylibjpeg")
    np.testing.assert_array_equal(decode(ds, SETTINGS).pixels, theirs)


@pytest.mark.parametrize("name", ["JPEG-lossy.dcm", "JPGExtended.dcm"])
def test_extended_jpeg_of_12_bits(name: str) -> None:
    stored = decode(dcmread(FILES / name), SETTINGS)
    # From pydicom's tests/pixels/pixels_reference.py.
    assert (stored.pixels[420, 140], stored.pixels[230, 120]) == (244, 95)
    assert (stored.pixels.dtype, stored.pixels.shape) == (np.dtype("uint16"), (1024, 256))


def lossless_frames(tmp_path: Path) -> Iterator[tuple[uids.UID, bytes, Pixels]]:
    """Frames of each Huffman-coded kind that must pass, with their pixels."""
    pixels = grey(12)
    for selection in range(1, 8):
        frame = imagecodecs.jpeg8_encode(pixels, lossless=True, predictor=selection, bitspersample=12)
        yield uids.JPEGLossless, frame, pixels
    yield uids.JPEGLosslessSV1, frame_of(made.as_jpeg_lossless(made.dataset(pixels), tmp_path)), pixels
    for bits, level in ((8, 40), (8, 100), (12, 95)):
        given = grey(bits)
        frame = imagecodecs.jpeg8_encode(given, level=level, bitspersample=bits, optimize=bits == 8)
        yield LOSSY[bits > 8], frame, imagecodecs.jpeg8_decode(frame)


def test_frames_whose_end_is_missing_are_refused(tmp_path: Path) -> None:
    """libjpeg-turbo and gdcm fill them in without an error, even if the end marker is there."""
    generator = np.random.default_rng(3)
    for syntax, frame, pixels in lossless_frames(tmp_path):
        bits = 8 if pixels.dtype == np.uint8 else 12
        ds = made.dataset(pixels, bits=bits)
        np.testing.assert_array_equal(decode(made.with_frame(ds, syntax, frame), SETTINGS).pixels, pixels)
        start = frame.index(b"\xff\xda") + 20
        for cut in generator.integers(start, len(frame) - 4, 8).tolist():
            short = frame[:cut].removesuffix(b"\xff") + b"\xff\xd9"
            assert imagecodecs.jpeg8_decode(short).shape == pixels.shape  # filled in
            with pytest.raises(ImageError, match="truncated or damaged"):
                decode(made.with_frame(ds, syntax, short), SETTINGS)
        twice = frame[:-2] + frame[start:]
        with pytest.raises(ImageError, match="damaged: the compressed frame has"):
            decode(made.with_frame(ds, syntax, twice), SETTINGS)


@pytest.mark.parametrize("selection", [1, 4, 7])
def test_restart_intervals_are_counted(selection: int) -> None:
    """A frame of two intervals is put together from two frames of one: prediction starts anew in each."""
    pixels = grey(12)
    halves = [
        imagecodecs.jpeg8_encode(
            np.ascontiguousarray(part), lossless=True, predictor=selection, bitspersample=12
        )
        for part in (pixels[:60], pixels[:60])
    ]
    scan = halves[0].index(b"\xff\xda")
    data = scan + 2 + int.from_bytes(halves[0][scan + 2 : scan + 4])
    frame = bytearray(halves[0][:-2] + b"\xff\xd0" + halves[1][data:])
    size = frame.index(b"\xff\xc3") + 5
    frame[size : size + 2] = (120).to_bytes(2)
    frame[scan:scan] = b"\xff\xdd\x00\x04" + (60 * 90).to_bytes(2)
    twice = np.concatenate([pixels[:60], pixels[:60]])
    ds = made.with_frame(made.dataset(twice), uids.JPEGLossless, bytes(frame))
    np.testing.assert_array_equal(decode(ds, SETTINGS).pixels, twice)
    with pytest.raises(ImageError, match="truncated or damaged"):
        decode(made.with_frame(ds, uids.JPEGLossless, bytes(frame[:-50]) + b"\xff\xd9"), SETTINGS)


@pytest.mark.parametrize("syntax", [uids.JPEG2000Lossless, uids.JPEGLSLossless, uids.HTJ2KLossless])
def test_other_frames_whose_end_is_missing_are_refused(syntax: uids.UID) -> None:
    pixels = grey(12)
    encode: dict[uids.UID, Callable[[Pixels], bytes]] = {
        uids.JPEG2000Lossless: lambda given: imagecodecs.jpeg2k_encode(
            given, codecformat="j2k", reversible=True
        ),
        uids.JPEGLSLossless: imagecodecs.jpegls_encode,
        uids.HTJ2KLossless: lambda given: imagecodecs.htj2k_encode(given, reversible=True),
    }
    frame = bytes(encode[syntax](pixels))
    ds = made.dataset(pixels)
    for share in (0.2, 0.5, 0.9, 0.99):
        short = frame[: int(share * len(frame))] + b"\xff\xd9"
        with pytest.raises(ImageError, match="cannot decode"):
            decode(made.with_frame(ds, syntax, short), SETTINGS)


def test_frames_of_another_process_or_depth_are_refused() -> None:
    pixels = grey(12)
    frame = imagecodecs.jpegls_encode(pixels)
    with pytest.raises(ImageError, match="JPEG process 0xF7, not of its transfer syntax"):
        decode(made.with_frame(made.dataset(pixels), uids.JPEGLosslessSV1, frame), SETTINGS)
    frame = imagecodecs.jpeg8_encode(pixels, lossless=True, predictor=1, bitspersample=12)
    ds = made.with_frame(made.dataset(pixels.astype(np.uint8), bits=8), uids.JPEGLosslessSV1, frame)
    with pytest.raises(ImageError, match="12 bits a pixel, the header allocates 8"):
        decode(ds, SETTINGS)


def test_nvimagecodec_is_refused_where_it_is_missing() -> None:
    with pytest.raises(InputError, match="decoder nvimagecodec: expected the package nvidia-nvimgcodec-cu12"):
        require_decoder("nvimagecodec")
    with pytest.raises(InputError, match="expected imagecodecs or nvimagecodec, found 'gdcm'"):
        require_decoder("gdcm")


@pytest.fixture
def nvimgcodec(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The names of nvImageCodec that are used, over a decoder on the processor; `shift` makes it wrong."""

    class Image:
        def __init__(self, values: Pixels) -> None:
            self._values = values

        def cpu(self) -> Pixels:
            return self._values[..., None]

    class Decoder:
        def decode(self, stream: bytes, params: Any) -> Image | None:
            assert params == {"allow_any_depth": True, "color_spec": "unchanged"}
            values = imagecodecs.jpeg2k_decode(stream) if stream.startswith(b"\xff\x4f") else None
            return None if values is None else Image(values + module.shift)

    module: Any = ModuleType("nvidia.nvimgcodec")
    module.Decoder, module.DecodeParams, module.shift = Decoder, dict, 0
    module.ColorSpec = type("ColorSpec", (), {"UNCHANGED": "unchanged"})
    monkeypatch.setitem(sys.modules, "nvidia", ModuleType("nvidia"))
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", module)
    monkeypatch.setattr(nvimagecodec, "_PACKAGES", ("absent-package", "imagecodecs"))  # any that is installed
    nvimagecodec.gpu_decoder.cache_clear()
    yield module
    nvimagecodec.gpu_decoder.cache_clear()


def test_nvimagecodec_decodes_lossless_frames_only(nvimgcodec: Any) -> None:
    require_decoder("nvimagecodec")
    pixels = grey(12)
    frame = imagecodecs.jpeg2k_encode(pixels, codecformat="j2k", reversible=True, bitspersample=12)
    ds = made.with_frame(made.dataset(pixels), uids.JPEG2000Lossless, frame)
    for _ in range(2):
        np.testing.assert_array_equal(decode(ds, SETTINGS, "nvimagecodec").pixels, pixels)
    nvimgcodec.shift = 1  # trusted by now; a wrong decoder is found at its first frame
    assert not np.array_equal(decode(ds, SETTINGS, "nvimagecodec").pixels, pixels)
    np.testing.assert_array_equal(
        decode(made.with_frame(ds, uids.JPEG2000, frame), SETTINGS, "nvimagecodec").pixels, pixels
    )
    nvimagecodec.gpu_decoder.cache_clear()
    ds = made.with_frame(ds, uids.JPEG2000Lossless, frame)
    with pytest.raises(InputError, match="expected the pixels of imagecodecs, found others"):
        decode(ds, SETTINGS, "nvimagecodec")
    lossless = imagecodecs.jpeg8_encode(pixels, lossless=True, predictor=1, bitspersample=12)
    with pytest.raises(ImageError, match="nvImageCodec returned no image"):
        decode(made.with_frame(ds, uids.JPEGLosslessSV1, lossless), SETTINGS, "nvimagecodec")
