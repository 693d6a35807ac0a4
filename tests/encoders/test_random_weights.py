"""Random weights: from the seed alone, and features that tell images apart."""

import hashlib

import pytest
import torch

from tests.encoders.replica import make_images, relative_difference
from trust_cache.encoders.encoder import FrozenEncoder
from trust_cache.encoders.known_encoders import identify_encoder, load_encoder

# Recorded once: another machine, thread count or version of torch gives these bytes too.
SEED_0 = "c464542246b9b920c3e5f83dc02404672ed652774b2acfe1ff004fc3198317d7"
FLOAT16_LARGEST = 65_504


@pytest.fixture(scope="session")
def encoder() -> FrozenEncoder:
    return load_encoder("random")


def digest(encoder: FrozenEncoder) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(encoder.network.state_dict().items()):
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def test_equal_on_every_start(encoder: FrozenEncoder) -> None:
    assert digest(encoder) == SEED_0


def test_global_generators_have_no_say_and_are_left_alone(encoder: FrozenEncoder) -> None:
    torch.manual_seed(123)
    before = torch.random.get_rng_state()
    again = load_encoder("random")
    assert torch.equal(before, torch.random.get_rng_state())
    assert digest(again) == digest(encoder)
    other = load_encoder("random", encoder="test_resnet", seed=5)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(7)
    assert digest(load_encoder("random", encoder="test_resnet", seed=5)) == digest(other)
    assert digest(load_encoder("random", encoder="test_resnet", seed=6)) != digest(other)


def test_marked_in_the_identity(encoder: FrozenEncoder) -> None:
    assert encoder.identity == identify_encoder("random")
    assert (encoder.identity.weights_sha256, encoder.identity.random) == ("random:seed=0", True)
    assert identify_encoder("random", seed=1) != identify_encoder("random", seed=2)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 7))]
)
def test_features_are_alive(encoder: FrozenEncoder, seed: int) -> None:
    """Distinct images differ clearly, at any contrast, and every activation fits into float16."""
    chosen = encoder if seed == 0 else load_encoder("random", seed=seed)
    largest = []
    hooks = [
        module.register_forward_hook(
            lambda _module, _inputs, output: largest.append(float(output.abs().max()))
        )
        for module in chosen.network.modules()
    ]
    base = make_images((152, 92), 3)
    images = torch.cat([base, 0.3 * base[:1], 3 * base[:1], torch.full_like(base[:1], -1.2)])
    features = chosen(images)
    for hook in hooks:
        hook.remove()
    assert len(largest) > 300
    assert max(largest) < FLOAT16_LARGEST / 100
    norms = features.norm(dim=1)
    assert norms.max() < 3 * norms.min()
    for one in range(len(images)):
        for other in range(one):
            assert relative_difference(features[one], features[other]) > 0.03
    # More than one number changes from image to image: the three bases span a plane.
    spread = torch.linalg.svdvals(features[:3] - features[:3].mean(0))
    assert spread[1] > 0.1 * spread[0]
