"""The rival: a fair plain PyTorch loop, one head at a time, on the same features in memory."""

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

BATCH_POSITIVES, BATCH_NEGATIVES = 20, 60
STEPS = 100  # of each configuration; five of them make 500
WARM_UP = 20

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def seconds_per_head_step(features: NDArray[np.float16], labels: NDArray[np.int64], threads: int) -> float:
    """Time the loop over all five configurations with this number of threads."""
    torch.set_num_threads(threads)
    images, views, dim = features.shape
    rows = torch.from_numpy(features.reshape(images * views, dim))
    pools = [torch.from_numpy(np.flatnonzero(labels == label)) for label in (1, 0)]
    return float(np.mean([_time(rows, pools, views, dim, loss) for loss in _losses()]))


def _time(rows: torch.Tensor, pools: list[torch.Tensor], views: int, dim: int, loss: Loss) -> float:
    head = torch.nn.Sequential(torch.nn.LayerNorm(dim), torch.nn.Dropout(0.3), torch.nn.Linear(dim, 1))
    optimiser = torch.optim.AdamW(head.parameters(), lr=3e-5, weight_decay=1e-4)
    target = torch.cat([torch.ones(BATCH_POSITIVES), torch.zeros(BATCH_NEGATIVES)])
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            start = time.perf_counter()
        drawn = [
            pool[torch.randint(pool.numel(), (count,))]
            for pool, count in zip(pools, (BATCH_POSITIVES, BATCH_NEGATIVES), strict=True)
        ]
        index = torch.cat(drawn) * views + torch.randint(1, views, (target.numel(),))
        batch = rows.index_select(0, index).float()
        optimiser.zero_grad(set_to_none=True)
        loss(head(batch).squeeze(1), target).backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 5.0)
        optimiser.step()
    return (time.perf_counter() - start) / STEPS


def _losses() -> list[Loss]:
    def ce(logit: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(logit, y)

    def brier(logit: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ce(logit, y) + 0.1 * (torch.sigmoid(logit) - y).square().mean()

    def focal(logit: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        each = functional.binary_cross_entropy_with_logits(logit, y, reduction="none")
        missing = (y - torch.sigmoid(logit)).abs()
        return each.mean() + (missing.square() * each).mean()

    def dismiss(logit: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        positive = torch.sigmoid(logit[:BATCH_POSITIVES])
        return focal(logit, y) + 0.05 * torch.relu(0.15 - positive).mean()

    return [ce, brier, focal, dismiss, dismiss]
