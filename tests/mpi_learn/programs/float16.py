"""Trains in float16 on two ranks; rank 0 also trains in a loop of PyTorch, and prints both. Argument: a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.training.checkpoints.checkpoint_file import load_checkpoint

N, BATCH, EPOCHS, RATE, SEED = 64, 8, 3, 1e-4, 3
SCALE = 300.0
"""Of the labels of one rank: in float16, gradients of 2 · label / batch · scale of the loss overflow."""
world = MPI.COMM_WORLD


def build():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def arrays():
    """In each step of two ranks, the first one takes `BATCH` samples with large labels, the second one the others."""
    random = np.random.default_rng(0)
    x = random.normal(size=(N, 6)).astype(np.float32)
    y = (0.1 * x[:, :1]).astype(np.float32)
    y[np.arange(N) % (2 * BATCH) < BATCH] *= SCALE
    return x, y


def by_mpi_learn(folder, epochs, **changes):
    wanted = {
        "model": f"{__file__}:build",
        "data": {"train": [str(folder / "data.npz")], "features": "x", "labels": "y", "shuffle": False},
        "loss": "mse",
        "optimizer": {"name": "sgd", "learning_rate": RATE},
        "batch_size": {"total": 2 * BATCH},
        "precision": "mixed_float16",
        "epochs": epochs,
        "seed": SEED,
    }
    return train(wanted | changes, world)


def by_pytorch(x, y):
    """A plain loop. The gradient of a step is the mean of those of two ranks, each scaled on its own."""
    torch.manual_seed(SEED)
    model = build()
    steps, scaler = torch.optim.SGD(model.parameters(), lr=RATE), torch.amp.GradScaler("cpu")
    losses, left_out = [], [False, False]
    for _ in range(EPOCHS):
        total = 0.0
        for first in range(0, N, 2 * BATCH):
            gradients = []
            for rank in range(2):
                part = slice(first + rank * BATCH, first + (rank + 1) * BATCH)
                with torch.autocast("cpu", torch.float16):
                    outputs = model(torch.from_numpy(x[part]))
                loss = torch.nn.functional.mse_loss(outputs.float(), torch.from_numpy(y[part]))
                total += BATCH * loss.item()
                steps.zero_grad()
                scaler.scale(loss).backward()
                gradients.append([parameter.grad.clone() for parameter in model.parameters()])
                left_out[rank] |= any(not one.isfinite().all() for one in gradients[-1])
            for parameter, one, other in zip(model.parameters(), *gradients, strict=True):
                parameter.grad = (one + other) / 2
            scaler.step(steps)
            scaler.update()
        losses.append(total / N)
    return losses, left_out, scaler.get_scale()


def scale_in(folder):
    return float(load_checkpoint(folder).arrays["algorithm.loss_scale"][0])


def main(folder):
    x, y = arrays()
    if world.rank == 0:
        np.savez(folder / "data.npz", x=x, y=y)
    world.Barrier()
    result = by_mpi_learn(folder, EPOCHS, checkpoint={"path": str(folder / "through")})
    by_mpi_learn(folder, 1, checkpoint={"path": str(folder / "resumed")})
    resumed = by_mpi_learn(folder, EPOCHS, checkpoint={"path": str(folder / "resumed")})
    weights = np.concatenate([one.detach().numpy().ravel() for one in result.model.parameters()])
    of_ranks = world.gather(weights)
    if world.rank:
        return
    losses, left_out, scale = by_pytorch(x, y)
    found = {
        "losses": result.history["loss"],
        "plain losses": losses,
        "left out": left_out,
        "scale": scale_in(folder / "through"),
        "plain scale": scale,
        "scale of a resumed training": scale_in(folder / "resumed"),
        "resumed losses": resumed.history["loss"],
        "differs between ranks": float(np.abs(of_ranks[0] - of_ranks[1]).max()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
