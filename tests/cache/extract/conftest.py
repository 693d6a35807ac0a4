"""One thread of torch: on a busy machine its threads wait for each other more than they compute."""

from collections.abc import Iterator

import pytest

from trust_cache.cache.extract.view_features import torch_threads


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    with torch_threads(1):
        yield
