"""A trained head as a plain torch module, for those who fine-tune or deploy it."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def to_torch(
    gamma: NDArray[np.float32],
    beta: NDArray[np.float32],
    weight: NDArray[np.float32],
    bias: float,
    dropout: float = 77 / 256,
) -> "torch.nn.Sequential":
    """Return LayerNorm, Dropout and Linear in evaluation mode: features [n, dim] to logits [n, 1]."""
    import torch  # noqa: PLC0415 - stage two runs without torch

    dim = weight.size
    module = torch.nn.Sequential(torch.nn.LayerNorm(dim), torch.nn.Dropout(dropout), torch.nn.Linear(dim, 1))
    arrays = {"0.weight": gamma, "0.bias": beta, "2.weight": weight[None], "2.bias": np.array([bias])}
    state = {name: torch.tensor(np.asarray(array, dtype=np.float32)) for name, array in arrays.items()}
    module.load_state_dict(state)
    return module.eval()
