"""Trainings with `batch_size: auto` and with the number that it has chosen, on all ranks of the world.

Argument: framework. The epochs are so short that no size but 32 and 64 is timed.
"""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.training.timing import timed_choices
from tests.mpi_learn.models_for_tests import digits

FRAMEWORK = sys.argv[1]
TESTS = Path(__file__).parents[1]
MODEL = {"keras": "models_for_tests.py:build_model", "torch": "torch_models_for_tests.py:build_classes"}[FRAMEWORK]
LOSS = {"keras": "sparse_categorical_crossentropy", "torch": "cross_entropy"}[FRAMEWORK]
world = MPI.COMM_WORLD


def weights(batch_size):
    """(batch size, losses, weights and batch statistics, notes)"""
    notes = []
    configuration = {
        "model": f"{TESTS / MODEL}",
        "parameters": {"dropout": 0.3, "norm": True},
        "loss": LOSS,
        "batch_size": batch_size,
        "epochs": 2,
        "optimizer": {"name": "adam", "learning_rate": 0.01},
        "seed": 5,
    }
    result = train(configuration, world, data=digits(), on_note=notes.append)
    model = result.model
    arrays = model.get_weights() if FRAMEWORK == "keras" else [one.numpy() for one in model.state_dict().values()]
    return result.batch_size, result.history["loss"], np.concatenate([np.ravel(one) for one in arrays]), notes


timed_choices.LEAST_STEPS = 10
try:
    size, losses, automatic, notes = weights("auto")
finally:
    timed_choices.LEAST_STEPS = 20
_, others, explicit, _ = weights(size)
sizes = world.allgather(size)
is_same = bool(world.allreduce(losses == others and np.array_equal(automatic, explicit), op=MPI.LAND))
if world.rank == 0:
    print(json.dumps({"sizes": sizes, "is_same": is_same, "notes": notes}))
