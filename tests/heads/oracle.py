"""The oracle: one head trained by torch modules, autograd, AdamW and clip_grad_norm_ in float64."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tests.heads.draws import draw_batch, draw_mask
from trust_cache.heads.bank import HeadParameters
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings


@dataclass(frozen=True)
class Cohort:
    """Features [image, view, dim] in float16 and labels."""

    features: NDArray[np.float16]
    labels: NDArray[np.int64]

    @property
    def positives(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.labels == 1)

    @property
    def negatives(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.labels == 0)


def make_cohort(
    dim: int, images: int = 400, positives: int = 60, views: int = 3, signal: float = 0.3
) -> Cohort:
    generator = np.random.default_rng(11)
    labels = np.zeros(images, dtype=np.int64)
    labels[generator.permutation(images)[:positives]] = 1
    base = generator.normal(0.4, 1.0, (images, 1, dim)) + signal * labels[:, None, None] * generator.normal(
        size=dim
    )
    features = base + 0.3 * generator.normal(size=(images, views, dim))
    return Cohort(np.ascontiguousarray(features.astype(np.float16)), labels)


def loss_of(logits: torch.Tensor, labels: torch.Tensor, settings: HeadSettings, tau: float) -> torch.Tensor:
    """The paper's losses, written with torch's stable pieces."""
    log_p = torch.nn.functional.logsigmoid(logits)
    log_q = torch.nn.functional.logsigmoid(-logits)
    p, g = log_p.exp(), settings.focal_gamma
    loss = -(labels * log_p + (1 - labels) * log_q).mean()
    loss = loss + settings.lambda_brier * ((p - labels) ** 2).mean()
    if settings.lambda_focal:
        focal = -(labels * (g * log_q).exp() * log_p + (1 - labels) * (g * log_p).exp() * log_q)
        loss = loss + settings.lambda_focal * focal.mean()
    hinge = torch.relu(tau + settings.margin - p[labels == 1])
    return loss + settings.lambda_dismiss * hinge.mean()


LossFunction = Callable[[torch.Tensor, torch.Tensor, HeadSettings, float], torch.Tensor]


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: tensors this small are slower on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@one_thread()
def train_oracle(
    cohort: Cohort,
    settings: HeadSettings,
    training: TrainingSettings,
    draws: Draws,
    initial: HeadParameters,
    steps: int,
    *,
    taus: Sequence[float] = (0.0,),
    loss: LossFunction = loss_of,
    clip: bool = True,
    decay: bool = True,
) -> dict[str, NDArray[np.float64]]:
    """Train head 0 of `initial` on the batches and masks that `draws` defines; taus change in equal parts."""
    dim = initial.dim
    norm, linear = torch.nn.LayerNorm(dim, dtype=torch.float64), torch.nn.Linear(dim, 1, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor(initial.gamma[0]))
        norm.bias.copy_(torch.tensor(initial.beta[0]))
        linear.weight.copy_(torch.tensor(np.array(initial.weight[:1])))
        linear.bias.fill_(float(initial.bias[0]))
    parameters = [norm.weight, norm.bias, linear.weight, linear.bias]
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.lr, weight_decay=settings.weight_decay if decay else 0.0, foreach=False
    )
    counts = (training.batch_positives, training.batch_negatives)
    labels = torch.tensor([1.0] * counts[0] + [0.0] * counts[1], dtype=torch.float64)
    for step in range(steps):
        batch = draw_batch(draws, step, cohort.positives, cohort.negatives, counts, cohort.features.shape[1])
        x = torch.tensor(cohort.features[batch.images, batch.views].astype(np.float64))
        keep = draw_mask(draws, step, training.batch, dim, training.dropped_of_256) > 0
        mask = torch.tensor(keep * (256 / (256 - training.dropped_of_256)))
        logits = linear(norm(x) * mask)[:, 0]
        optimizer.zero_grad()
        loss(logits, labels, settings, taus[step * len(taus) // steps]).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
        optimizer.step()
    names = ("gamma", "beta", "weight", "bias")
    return {name: p.detach().numpy().reshape(-1) for name, p in zip(names, parameters, strict=True)}
