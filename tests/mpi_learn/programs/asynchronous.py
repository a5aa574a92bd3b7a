"""Run under mpirun: trains the digits by every algorithm with masters or clusters; rank 0 prints what all saw."""

import builtins
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from mpi_learn import train
from tests.mpi_learn.models_for_tests import digits

HERE = Path(__file__).parents[1]
COMMON = {"metrics": ["accuracy"], "epochs": 4, "batch_size": 32, "seed": 2}
KERAS = {"model": f"{HERE / 'models_for_tests.py'}:build_model", "loss": "sparse_categorical_crossentropy"}
TORCH = {"model": f"{HERE / 'torch_models_for_tests.py'}:build_classes", "loss": "cross_entropy"}
SGD = {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9}
ADAM = {"name": "adam", "learning_rate": 0.003}
CASES = {
    "downpour": TORCH | {"algorithm": "downpour", "optimizer": ADAM},
    "easgd": KERAS | {"algorithm": "easgd", "optimizer": SGD, "parameters": {"norm": True}},
    "gem": KERAS | {"algorithm": "gem", "optimizer": {"name": "sgd", "learning_rate": 0.05}},
    "clusters": TORCH | {"algorithm": {"name": "clusters", "size": 1, "exchange_every": 4}, "optimizer": SGD},
}


@contextmanager
def imported() -> Iterator[set[str]]:
    """The frameworks that import statements ask for, whether they are loaded already or not."""
    names: set[str] = set()
    original = builtins.__import__

    def recorded(name, *others, **named):
        names.add(name.partition(".")[0])
        return original(name, *others, **named)

    with patch.object(builtins, "__import__", recorded):
        yield names
    names &= {"keras", "tensorflow", "torch"}


def main() -> None:
    world = MPI.COMM_WORLD
    seen = {}
    for name, case in CASES.items():
        with imported() as frameworks:
            result = train(COMMON | case, world, data=digits())
        x, y = result.validation
        score = None
        if name == "downpour":
            import torch

            with torch.no_grad():
                score = float(np.mean(result.model(torch.from_numpy(x)).numpy().argmax(1) == y))
        elif name == "gem":  # the first time that the master, too, builds the model
            score = float(np.mean(result.model.predict(x, verbose=0).argmax(1) == y))
        seen[name] = world.gather({"history": result.history, "frameworks": sorted(frameworks), "accuracy": score})
    if world.rank == 0:
        print(json.dumps(seen))


main()
