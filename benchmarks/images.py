"""Preprocessing a large image against decoding and writing it; two workers against one; JPEG lossless."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pydicom.pixels.decoders.base import get_decoder
from pydicom.uid import JPEGLosslessSV1

from benchmarks.timing import best
from trust_cache.images.decoding.decode import decode
from trust_cache.images.dicom_file import read_dataset
from trust_cache.images.picture import process_image
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.images.png_files import encode_png
from trust_cache.images.preprocess import preprocess
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import Encoding, Tags, mammogram_bytes

ROWS, COLUMNS = 5355, 4915
IMAGES = 6
AT_MOST, AT_LEAST_TWO, MEMORY_BYTES = 1.6, 1.8, 1e9
LOSSLESS_ROWS, LOSSLESS_COLUMNS, OF_GDCM = 3328, 2560, 2.5
ROUNDS = 5


def run() -> bool:
    """Print times and ratios; return whether the targets were met."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = _image(folder / "image.dcm")
        ours = best(lambda: encode_png(process_image(file, "L").png_pixels))
        bare = best(lambda: encode_png(decode(read_dataset(file), ImageSettings()).pixels))
        peak = _peak_of_one(file)
        one, two = (min(_over(folder, file, workers, n) for n in range(3)) for workers in (1, 2))
    print(f"images: one {ROWS}x{COLUMNS} JPEG 2000 image: {ours:.2f} s, {ours / bare:.2f}x of decoding it and"
          f" writing its PNG ({bare:.2f} s; at most {AT_MOST}x)")  # fmt: skip
    gain = f"{one / two:.2f}x (at least {AT_LEAST_TWO}x)"
    print(f"  {IMAGES} images: one worker {one:.1f} s, two {two:.1f} s: {gain}")
    print(f"  peak memory of a worker: {peak / 1e9:.2f} GB (under {MEMORY_BYTES / 1e9:.0f} GB)")
    good = ours / bare <= AT_MOST and one / two >= AT_LEAST_TWO and peak < MEMORY_BYTES
    return _lossless_against_gdcm() and good


def _lossless_against_gdcm() -> bool:
    """Compare processor time, with the check of every frame on our side only."""
    with tempfile.TemporaryDirectory() as name:
        file = _image(Path(name) / "image.dcm", "jpeg-lossless", LOSSLESS_ROWS, LOSSLESS_COLUMNS)
        dataset = read_dataset(file)
    theirs = get_decoder(JPEGLosslessSV1)
    ours, gdcm = (
        min(_processor_seconds(function) for _ in range(ROUNDS))
        for function in (
            lambda: decode(dataset, ImageSettings()),
            lambda: theirs.as_array(dataset, raw=True, index=0, decoding_plugin="gdcm"),
        )
    )
    size, ratio = f"{LOSSLESS_ROWS}x{LOSSLESS_COLUMNS}", f"{gdcm / ours:.1f}x (at least {OF_GDCM}x)"
    print(f"  JPEG lossless {size}: {ours:.3f} s of processor time, gdcm {gdcm:.3f} s: {ratio}")
    return gdcm / ours >= OF_GDCM


def _processor_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _image(path: Path, syntax: str = "jpeg-2000", rows: int = ROWS, columns: int = COLUMNS) -> Path:
    phantom = draw_phantom(PhantomSettings(rows, columns, "L", "MLO"), seed=0)
    encoding = Encoding(bits=12, photometric="MONOCHROME2", syntax=syntax)
    path.write_bytes(mammogram_bytes(phantom, encoding, Tags()))
    return path


def _peak_of_one(file: Path) -> float:
    """The peak of a process that does one image and nothing else."""
    code = (
        "import sys; from trust_cache.images.picture import process_image;"
        "from trust_cache.images.png_files import encode_png;"
        "encode_png(process_image(sys.argv[1], 'L').png_pixels)"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _over(folder: Path, file: Path, workers: int, attempt: int) -> float:
    rows = "".join(f"{n},{n},0,L,MLO,{file}\n" for n in range(IMAGES))
    manifest = folder / "manifest.csv"
    manifest.write_text(f"image_id,case_id,label,laterality,projection,path\n{rows}")
    start = time.perf_counter()
    preprocess(manifest, folder / f"png-{workers}-{attempt}", workers=workers)
    return time.perf_counter() - start
