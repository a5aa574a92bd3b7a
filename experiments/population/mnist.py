"""Population-based training against the best constant learning rate of a grid, on MNIST, and against a known schedule.

``python mnist.py --from FOLDER`` reads MNIST's four idx files from a folder; without ``--from`` they are downloaded.
For each seed and each method, eight networks are trained for ten epochs on the same 50,000 images. The best network is
selected by the loss on the other 10,000 images, and also evaluated on the test images.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from networks import N_PIXELS, Images, Networks

from mpi_learn.known_data import prepare
from mpi_opt.core.search_space.space import Real
from mpi_opt.core.trial import Failed
from mpi_opt.strategies import make_strategy

N_NETWORKS, N_EPOCHS, BATCH_SIZE = 8, 10, 16
N_TRAINING = 50_000
LOW, HIGH = 2e-3, 1.0
RATES = np.geomspace(LOW, HIGH, N_NETWORKS)
COSINE = 0.5 * (1 + np.cos(np.pi * np.arange(N_EPOCHS) / N_EPOCHS))


@dataclass(frozen=True)
class Data:
    """The images for training, for selection (validation), and for the final evaluation (test)."""

    training: Images
    validation: Images
    test: Images


@dataclass(frozen=True)
class Found:
    """The network with the smallest validation loss after the last epoch.

    Attributes:
        loss: Validation loss.
        error: The fraction of validation images that it classifies wrongly.
        test_loss: Loss on the test images.
        test_error: The fraction of test images that it classifies wrongly.
        any_loss: The smallest validation loss of any network after any epoch.
    """

    loss: float
    error: float
    test_loss: float
    test_error: float
    any_loss: float


def train_schedules(data: Data, rates: np.ndarray, factors: np.ndarray, seed: int) -> tuple[Found, float]:
    """Trains with each learning rate, multiplied by `factors[epoch]`; returns the best network and its rate."""
    networks, losses = Networks(len(rates), seed), []
    for epoch, factor in enumerate(factors):
        networks.train_epoch(data.training, rates * factor, BATCH_SIZE, seed * 1000 + epoch)
        losses.append(np.nan_to_num(networks.evaluate(data.validation)[0], nan=np.inf))
    best = int(losses[-1].argmin())
    return found(networks, best, data, np.min(losses)), float(rates[best])


def train_population(data: Data, seed: int) -> tuple[Found, list[float]]:
    """Trains a population with default options, epoch by epoch; returns the best network and its schedule of rates."""
    options = {"population": N_NETWORKS, "max_budget": N_EPOCHS}
    strategy = make_strategy("population", {"rate": Real(LOW, HIGH, prior="log-uniform")}, seed=seed, options=options)
    networks, saved, losses = Networks(N_NETWORKS, seed), {}, []
    schedules: dict[int | None, list[float]] = {None: []}
    for epoch in range(N_EPOCHS):
        proposals = strategy.ask(N_NETWORKS)
        schedules |= {one.number: schedules[one.resume_from] + [one.parameters["rate"]] for one in proposals}
        for index, proposal in enumerate(proposals):
            if proposal.resume_from is not None:
                networks.set_weights(index, saved[proposal.resume_from])
        rates = np.array([proposal.parameters["rate"] for proposal in proposals])
        networks.train_epoch(data.training, rates, BATCH_SIZE, seed * 1000 + epoch)
        losses.append(np.nan_to_num(networks.evaluate(data.validation)[0], nan=np.inf))
        saved = {proposal.number: networks.weights(index) for index, proposal in enumerate(proposals)}
        for proposal, loss in zip(proposals, losses[-1], strict=True):
            strategy.tell(proposal, float(loss) if np.isfinite(loss) else Failed("the loss is not a number"))
    best = int(losses[-1].argmin())
    return found(networks, best, data, np.min(losses)), schedules[proposals[best].number]


def compared(data: Data, seed: int) -> Iterator[tuple[str, tuple[Found, list[float]]]]:
    """Yields each method, its best network and its rates.

    The known schedule starts at the best constant rate or the next larger one.
    """
    constant, rate = train_schedules(data, RATES, np.ones(N_EPOCHS), seed)
    yield "constant", (constant, [rate])
    cosine, first = train_schedules(data, RATES[rate <= RATES][:2], COSINE, seed)
    yield "cosine", (cosine, [first])
    yield "population", train_population(data, seed)


def found(networks: Networks, best: int, data: Data, any_loss: float) -> Found:
    """Evaluates one network."""
    columns = [values[best] for part in (data.validation, data.test) for values in networks.evaluate(part)]
    return Found(*map(float, columns), any_loss=float(any_loss))


def read(source: Path | None) -> tuple[Images, Images]:
    """The 60,000 training images and the 10,000 test images."""
    with tempfile.TemporaryDirectory() as folder:
        prepare("mnist", Path(folder) / "mnist.h5", source)
        return tuple(_read(Path(folder) / name) for name in ("mnist.h5", "mnist_test.h5"))


def _read(path: Path) -> Images:
    with h5py.File(path) as file:
        pixels, classes = file["X"][:], file["y"][:]
    return Images(torch.from_numpy(pixels.reshape(-1, N_PIXELS) / np.float32(255) - np.float32(0.5)), _long(classes))


def _long(classes: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(classes.astype(np.int64))


def main() -> None:
    """Prints a row for each seed, the medians, and how often the population was better."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, help="folder with the idx files of MNIST")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    images, test = read(given.source)
    print("| seed | | rate | validation loss | error % | test loss | error % | loss at any time |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows: dict[str, list[Found]] = {"constant": [], "cosine": [], "population": []}
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        order = torch.randperm(len(images.classes), generator=torch.Generator().manual_seed(seed))
        data = Data(images.part(order[:N_TRAINING]), images.part(order[N_TRAINING:]), test)
        for name, (one, rates) in compared(data, seed):
            rows[name].append(one)
            cells = f"{seed} | {name} | {' '.join(f'{rate:.2g}' for rate in rates)} | {shown(astuple(one))}"
            print(f"| {cells} |", flush=True)
    for name, ones in rows.items():
        print(f"| median | {name} | | {shown(np.median([astuple(one) for one in ones], axis=0))} |")
    pairs = [np.array([astuple(one) for one in rows[name]]) for name in ("population", "constant")]
    n_better = (pairs[0] < pairs[1]).sum(axis=0)
    print(f"| better | population than constant | | {' | '.join(f'{n} of {given.seeds}' for n in n_better)} |")


def shown(values: tuple[float, ...] | np.ndarray) -> str:
    """Table cells: losses, and errors in percent."""
    loss, error, test_loss, test_error, any_loss = values
    return f"{loss:.4f} | {100 * error:.2f} | {test_loss:.4f} | {100 * test_error:.2f} | {any_loss:.4f}"


if __name__ == "__main__":
    main()
