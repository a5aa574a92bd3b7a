"""Clusters as replicas in one process: the loss as a function of the steps that an exchange takes. No network, no MPI.

    python experiments/slow_link/replicas.py --data mnist.h5            # the first table of the README; under an hour
    python experiments/slow_link/replicas.py --data mnist.h5 --exact-steps --seeds 5    # its second table
    python experiments/slow_link/replicas.py --data mnist.h5 --inner-optimizers         # its third table, 15 minutes
    python experiments/slow_link/replicas.py --data mnist.h5 --smoke    # a few steps of each row

The replicas follow the equations of ``mpi_learn/algorithms/clusters.py``. The loss is that of the images on which
settings are tuned, not of the test set.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import torch
from tables import with_spread

SHAPES = ((784, 788), (788,), (788, 788), (788,), (788, 10), (10,))
N_WEIGHTS = sum(math.prod(shape) for shape in SHAPES)
N_TRAINING, N_VALIDATION, N_EPOCHS = 10_240, 10_000, 2
BLOCK = 256


@dataclass(frozen=True)
class Row:
    """Settings of a row of the table.

    Attributes:
        n_replicas: Clusters; 1 is ``allreduce``.
        batch_size: Samples per cluster and step.
        exchange_every: Steps between two exchanges.
        delay: Steps from the snapshot until the result is applied.
        outer: Learning rate and momentum of the outer optimizer; None: the mean.
        compression: ``int8``: differences from the weights at the start of the epoch are rounded to 8 bits.
        matrix_rank: Rank of the gradients of ``allreduce`` with ``compression: power-sgd``; 0: whole gradients.
        exact_steps: The first steps of ``allreduce``, with whole gradients also if there is a rank.
        schedule: ``cosine``: the learning rate falls to 0.
        optimizer: ``adam``, or ``muon`` for the matrices of the hidden layers, with Adam for the other weights.
        weight_decay: Decoupled, of all weights; Adam with it is AdamW.
        ns_steps: Newton-Schulz iterations of Muon.
    """

    learning_rate: float
    n_replicas: int = 4
    batch_size: int = 64
    exchange_every: int = 1
    delay: int = 1
    neighbours: str = "all"
    outer: tuple[float, float] | None = None
    compression: str = "none"
    schedule: str = "constant"
    matrix_rank: int = 0
    exact_steps: int = 0
    optimizer: str = "adam"
    weight_decay: float = 0.0
    ns_steps: int = 5


ROWS = (
    Row(0.001, 1, 256),
    Row(0.002, 1, 256),
    Row(0.003, 1, 256),
    Row(0.004, 1, 256),
    Row(0.004),
    *(
        Row(rate, batch_size=n, exchange_every=10, delay=192 // n, neighbours="random")
        for n in (64, 32, 16)
        for rate in (0.001, 0.002, 0.003, 0.004)
    ),
    Row(0.004, delay=4, neighbours="random"),
    Row(0.003, delay=2, neighbours="random", compression="int8"),
    Row(0.004, delay=2, neighbours="random", compression="int8"),
    Row(0.005, delay=2, neighbours="random", compression="int8"),
    Row(0.004, delay=3, compression="int8"),
    Row(0.004, delay=7),
    Row(0.003, batch_size=32, exchange_every=15, delay=12, outer=(0.7, 0.7)),
    Row(0.004, 1, 256, schedule="cosine"),
    Row(0.006, 1, 256, schedule="cosine"),
    Row(0.006, delay=2, neighbours="random", compression="int8", schedule="cosine"),
    *(Row(0.003, 1, 256, matrix_rank=rank) for rank in (4, 8, 16, 32, 64)),
    *(Row(0.006, 1, 256, matrix_rank=rank, schedule="cosine") for rank in (4, 8, 16, 32, 64)),
)
WHOLE = (Row(0.003, 1, 256), Row(0.006, 1, 256, schedule="cosine"))
NESTEROV = Row(0.002, batch_size=32, exchange_every=15, delay=12, outer=(0.7, 0.7))
OF_MUON = Row(0.02, batch_size=128, exchange_every=5, delay=2, optimizer="muon")
INNER_OPTIMIZERS = (
    Row(0.003, 1, 256, weight_decay=0.1),
    Row(0.006, 1, 256, weight_decay=0.1, schedule="cosine"),
    NESTEROV,
    replace(NESTEROV, weight_decay=0.1),
    *(Row(rate, 1, 256, optimizer="muon") for rate in (0.004, 0.0055, 0.007)),
    *(Row(rate, 1, 256, optimizer="muon", schedule="cosine") for rate in (0.012, 0.016)),
    *(Row(rate, 1, 512, optimizer="muon", schedule="cosine") for rate in (0.024, 0.032)),
    replace(NESTEROV, learning_rate=0.004, optimizer="muon"),
    replace(NESTEROV, learning_rate=0.005, optimizer="muon", outer=None),
    *(replace(OF_MUON, learning_rate=rate) for rate in (0.016, 0.02, 0.024)),
    replace(OF_MUON, ns_steps=3),
    *(replace(OF_MUON, learning_rate=0.03, batch_size=256, exchange_every=3, delay=1, ns_steps=n) for n in (5, 3)),
)
EXACT_STEPS = tuple(
    replace(row, matrix_rank=rank, exact_steps=n) for row in WHOLE for rank in (24, 28, 32) for n in (0, 2, 3, 4, 5)
)


class Replicas:
    """A network of two hidden layers per cluster, all with the same initial weights, and its optimizer."""

    def __init__(self, row: Row, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        first = torch.empty(1, N_WEIGHTS)
        for array, n_inputs in zip(arrays(first), (784, 784, 788, 788, 788, 788), strict=True):
            array.uniform_(-1 / math.sqrt(n_inputs), 1 / math.sqrt(n_inputs), generator=generator)
        self.weights = first.repeat(row.n_replicas, 1).requires_grad_()
        self.optimizers = [torch.optim.AdamW([self.weights], eps=1e-7, weight_decay=row.weight_decay, fused=True)]
        self.hidden = hidden_matrices(self.weights.detach()) if row.optimizer == "muon" else []
        if self.hidden:
            # Adam decays their weights, too
            options = {"weight_decay": 0, "ns_steps": row.ns_steps, "adjust_lr_fn": "match_rms_adamw"}
            self.optimizers += [torch.optim.Muon(self.hidden, **options)]
        self.n_steps, self.exact_steps = 0, row.exact_steps
        self.low_rank = LowRank(row.matrix_rank, generator) if row.matrix_rank else None

    def step(self, x: torch.Tensor, y: torch.Tensor, rate: float) -> None:
        """One step of each replica.

        Args:
            x: (replicas, samples, 784).
            y: (replicas, samples).
            rate: Learning rate.
        """
        losses = torch.nn.functional.cross_entropy(outputs(self.weights, x).flatten(0, 1), y.flatten(), reduction="sum")
        (self.weights.grad,) = torch.autograd.grad(losses / y.shape[1], self.weights)
        if self.low_rank is not None and self.n_steps >= self.exact_steps:
            self.low_rank.apply(self.weights.grad)
        for matrix, gradient in zip(self.hidden, hidden_matrices(self.weights.grad), strict=False):
            # with a gradient of zero, Adam does not move a matrix
            matrix.grad = gradient.clone()
            gradient.zero_()
        for optimizer in self.optimizers:
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
        self.n_steps += 1


class LowRank:
    """PowerSGD with error feedback. It is linear in the ranks' gradients, so that their mean is enough."""

    def __init__(self, matrix_rank: int, generator: torch.Generator) -> None:
        self.right = {
            number: torch.randn(shape[1], matrix_rank, generator=generator)
            for number, shape in enumerate(SHAPES)
            if matrix_rank * sum(shape) < math.prod(shape)
        }
        self.held_back = torch.zeros(1, N_WEIGHTS)

    def apply(self, gradient: torch.Tensor) -> None:
        """Replaces `gradient`, (1, n), by what reaches all ranks."""
        gradient += self.held_back
        self.held_back.zero_()
        for number, right in self.right.items():
            matrix, held_back = arrays(gradient)[number][0], arrays(self.held_back)[number][0]
            left, _ = torch.linalg.qr(matrix @ right)
            self.right[number] = matrix.T @ left
            held_back += matrix - left @ self.right[number].T
            matrix -= held_back


def arrays(weights: torch.Tensor) -> list[torch.Tensor]:
    """The layers' arrays as views of flat `weights`, (replicas, n)."""
    parts = weights.split([math.prod(shape) for shape in SHAPES], dim=1)
    return [part.view(-1, *shape) for part, shape in zip(parts, SHAPES, strict=True)]


def hidden_matrices(weights: torch.Tensor) -> list[torch.Tensor]:
    """The matrices of the hidden layers of all replicas, as views of flat `weights`, (replicas, n)."""
    first, _, second, *_ = arrays(weights)
    return [*first, *second]


def outputs(weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """(replicas, samples, 10)."""
    w1, b1, w2, b2, w3, b3 = arrays(weights)
    hidden = torch.relu(torch.baddbmm(b1[:, None], x, w1))
    return torch.baddbmm(b3[:, None], torch.relu(torch.baddbmm(b2[:, None], hidden, w2)), w3)


class Exchanges:
    """Delayed exchanges between replicas: with all of them, in random pairs, or with an outer optimizer."""

    def __init__(self, row: Row, weights: torch.Tensor) -> None:
        self.row, self.n_rounds, self.due = row, 0, None
        self.common, self.velocity = weights[0].clone(), torch.zeros(N_WEIGHTS)
        self.snapshot = self.reference = weights.clone()

    def begin(self, weights: torch.Tensor, step: int) -> None:
        """Takes the snapshots of a round after `step` steps, unless one is under way."""
        if self.due is None and self.row.n_replicas > 1 and step % self.row.exchange_every == 0:
            self.snapshot, self.due = weights.clone(), step + self.row.delay
            if self.row.compression == "int8":
                self.snapshot = self.reference + rounded(weights - self.reference)

    def apply_if_due(self, weights: torch.Tensor, step: float = math.inf) -> None:
        """``w ← w + (target − snapshot)``, if a round is under way and ends at `step` or earlier."""
        if self.due is None or step < self.due:
            return
        weights += self._target() - self.snapshot
        self.n_rounds, self.due = self.n_rounds + 1, None

    def _target(self) -> torch.Tensor:
        """The weights on which the replicas agree: (n,), or (replicas, n) with random pairs."""
        if self.row.outer is not None:
            return self._outer_step(*self.row.outer)
        if self.row.neighbours == "all":
            return self.snapshot.mean(0)
        n_replicas = len(self.snapshot)
        order = np.random.default_rng([n_replicas, self.n_rounds]).permutation(n_replicas)
        target = torch.empty_like(self.snapshot)
        for pair in order.reshape(-1, 2):
            target[pair] = self.snapshot[pair].mean(0)
        return target

    def _outer_step(self, rate: float, momentum: float) -> torch.Tensor:
        """A step of Nesterov momentum; its gradient is the difference from the mean of the snapshots."""
        gradient = self.common - self.snapshot.mean(0)
        self.velocity = momentum * self.velocity - rate * gradient
        self.common = self.common + momentum * self.velocity - rate * gradient
        return self.common

    def average(self, weights: torch.Tensor) -> None:
        """Applies a round that is under way, then replaces all weights by their mean: the end of an epoch."""
        self.apply_if_due(weights)
        weights[:] = weights.mean(0)
        self.reference = weights.clone()


def rounded(vectors: torch.Tensor) -> torch.Tensor:
    """`vectors`, (replicas, n), of which each block of 256 elements is rounded to 255 equidistant values."""
    n_replicas, n = vectors.shape
    blocks = torch.nn.functional.pad(vectors, (0, -n % BLOCK)).view(n_replicas, -1, BLOCK)
    scales = blocks.abs().amax(2, keepdim=True).clamp(min=1e-30) / 127
    return blocks.div_(scales).round_().mul_(scales).view(n_replicas, -1)[:, :n]


def train(row: Row, samples: tuple[torch.Tensor, ...], seed: int, n_steps: int) -> Iterator[float]:
    """The validation loss after each epoch of `n_steps` steps."""
    x, y, x_validation, y_validation = samples
    replicas = Replicas(row, seed)
    weights = replicas.weights.detach()
    exchanges, width = Exchanges(row, weights), row.batch_size * row.n_replicas
    for epoch in range(N_EPOCHS):
        order = torch.tensor(np.random.default_rng([seed, epoch]).permutation(len(x)))
        for step in range(n_steps):
            part = order[step * width : (step + 1) * width].view(row.n_replicas, row.batch_size)
            replicas.step(x[part], y[part], learning_rate(row, replicas.n_steps / (N_EPOCHS * n_steps)))
            exchanges.apply_if_due(weights, replicas.n_steps)
            exchanges.begin(weights, replicas.n_steps)
        exchanges.average(weights)
        yield float(torch.nn.functional.cross_entropy(outputs(weights[:1], x_validation[None])[0], y_validation))


def learning_rate(row: Row, progress: float) -> float:
    """The learning rate after the fraction `progress` of all steps."""
    factor = (1 + math.cos(math.pi * progress)) / 2 if row.schedule == "cosine" else 1.0
    return row.learning_rate * factor


def last_losses(row: Row, samples: tuple[torch.Tensor, ...], n_steps: int, n_seeds: int) -> list[float]:
    """The validation loss of each run after its last epoch."""
    return [list(train(row, samples, seed, n_steps))[-1] for seed in range(n_seeds)]


def read(file: Path) -> tuple[torch.Tensor, ...]:
    """Images and labels for training, then those for validation."""
    with h5py.File(file) as data:
        x = torch.tensor(np.asarray(data["X"][: N_TRAINING + N_VALIDATION], np.float32).reshape(-1, 784) / 255)
        y = torch.tensor(np.asarray(data["y"][: N_TRAINING + N_VALIDATION], np.int64))
    return x[:N_TRAINING], y[:N_TRAINING], x[N_TRAINING:], y[N_TRAINING:]


def compare_rows(rows: Iterable[Row], samples: tuple[torch.Tensor, ...], n_seeds: int, n_steps: int | None) -> None:
    """Prints the losses of `rows`.

    Args:
        n_steps: Steps per epoch; None: all samples.
    """
    delay_heads = "exchange every n steps | duration in steps"
    print(f"| exchange | samples per cluster and step | learning rate | {delay_heads} | runs | loss |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        losses = last_losses(row, samples, n_steps or N_TRAINING // (row.batch_size * row.n_replicas), n_seeds)
        delays = ["–", "–"] if row.n_replicas == 1 else [row.exchange_every, row.delay]
        print_row(name_of(row), row.batch_size, rate_of(row), *delays, n_seeds, with_spread(losses))


def compare_exact_steps(samples: tuple[torch.Tensor, ...], n_seeds: int, n_steps: int | None) -> None:
    """Prints the losses of `EXACT_STEPS`, and their differences from whole gradients with the same seeds.

    Args:
        n_steps: Steps per epoch; None: all samples.
    """
    print("| rank | exact steps | learning rate | runs | loss | difference from whole gradients |")
    print("|---|---|---|---|---|---|")
    n_steps = n_steps or N_TRAINING // WHOLE[0].batch_size
    of_whole = {row.schedule: np.array(last_losses(row, samples, n_steps, n_seeds)) for row in WHOLE}
    for row in EXACT_STEPS:
        losses, whole = last_losses(row, samples, n_steps, n_seeds), of_whole[row.schedule]
        differences = 100 * (np.array(losses) - whole) / whole.mean()
        error = f" ± {differences.std(ddof=1) / math.sqrt(n_seeds):.1f}" if n_seeds > 1 else ""
        difference = f"{differences.mean():+.1f}{error} %"
        print_row(row.matrix_rank, row.exact_steps, rate_of(row), n_seeds, with_spread(losses), difference)


def name_of(row: Row) -> str:
    """How a row exchanges, and what is not as in most rows."""
    exchange = f"outer {row.outer[0]}, {row.outer[1]}" if row.outer is not None else row.neighbours
    parts = ["`allreduce`" if row.n_replicas == 1 else exchange]
    if row.matrix_rank:
        parts.append(f"rank {row.matrix_rank}")
    if row.compression == "int8":
        parts.append("8 bits")
    if row.optimizer == "muon":
        parts.append("Muon" if row.ns_steps == Row.ns_steps else f"Muon, {row.ns_steps} iterations")
    if row.weight_decay:
        parts.append(f"AdamW, decay {row.weight_decay}")
    return ", ".join(parts)


def rate_of(row: Row) -> str:
    """The learning rate, and its schedule unless it is constant."""
    return f"{row.learning_rate} cosine" if row.schedule == "cosine" else str(row.learning_rate)


def print_row(*cells: object) -> None:
    """Prints a row of a table as soon as it is measured."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the file that `mpi-learn prepare mnist --to` wrote")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each row")
    parser.add_argument("--exact-steps", action="store_true", help="the table of exact steps and ranks")
    parser.add_argument("--inner-optimizers", action="store_true", help="the table of Muon and weight decay")
    parser.add_argument("--smoke", action="store_true", help="one step per epoch, one run of each row")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    samples = read(arguments.data)
    n_seeds, n_steps = (1, 1) if arguments.smoke else (arguments.seeds, None)
    if arguments.exact_steps:
        compare_exact_steps(samples, n_seeds, n_steps)
    else:
        compare_rows(INNER_OPTIMIZERS if arguments.inner_optimizers else ROWS, samples, n_seeds, n_steps)


if __name__ == "__main__":
    main()
