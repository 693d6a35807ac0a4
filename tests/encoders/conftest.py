"""One oracle, its archive and our conversion of it, shared by the tests of a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.encoders.replica import PREFIX, make_oracle, save_archive
from trust_cache.encoders.convert_weights import Conversion, convert_weights


@pytest.fixture(scope="session")
def oracle() -> nn.Module:
    return make_oracle()


@pytest.fixture(scope="session")
def archive(oracle: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("archive") / "b5-model-best-epoch-7.tar"
    theirs = {PREFIX + name: tensor for name, tensor in oracle.state_dict().items()}
    others = {"text_encoder.layer.weight": torch.ones(3), "image_projection.weight": torch.ones(2, 2)}
    save_archive(path, {**theirs, **others})
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def converted(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Conversion]]:
    path = tmp_path_factory.mktemp("converted") / "encoder.safetensors"
    yield path, convert_weights(archive, path)
    path.unlink()


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """Several threads on a busy machine wait for one another far longer than one works."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
