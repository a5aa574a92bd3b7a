"""Run under mpirun on 2 or 4 ranks: trains models in stages; rank 0 prints one JSON line of what it saw.

Arguments: the framework; the folder of ``data.npz``; the names of cases.
"""

import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.data.samples import streamed_batches
from mpi_learn.errors import MPILearnError
from mpi_learn.models.pipeline.link import Link
from mpi_learn.training import evaluation
from mpi_learn.training.checkpoints.checkpoint_file import saved_layers_of_stages
from mpi_learn.training.sections import Checkpoint

FRAMEWORK, FOLDER = sys.argv[1], Path(sys.argv[2])
MODELS = Path(__file__).with_name(f"{FRAMEWORK}_models.py")
LOSS = {"torch": "cross_entropy", "keras": "sparse_categorical_crossentropy"}[FRAMEWORK]
SGD, ADAM = {"name": "sgd", "learning_rate": 0.1}, {"name": "adam", "learning_rate": 0.01}
EPOCHS, BATCH, SEED = 3, 16, 3
N_SAMPLES = 106
world = MPI.COMM_WORLD
half = world.Split(world.rank // 2, world.rank)
REPLICAS = world.size // 2
"""Of a model in two stages."""


def configuration(function, stages, batch=BATCH, **changes):
    return {
        "model": f"{MODELS}:{function}",
        "data": {
            "train": [str(FOLDER / "data.npz")],
            "validation": [str(FOLDER / "data.npz")],
            "features": "x",
            "labels": "y",
            "shuffle": False,
        },
        "loss": LOSS,
        "metrics": ["accuracy"],
        "batch_size": batch,
        "epochs": EPOCHS,
        "seed": SEED,
        "pipeline": {"stages": stages, "micro_batches": 3},
    } | changes


def checksum(model):
    arrays = model.get_weights() if FRAMEWORK == "keras" else [p.detach().numpy() for p in model.parameters()]
    return float(sum(np.abs(array).sum() for array in arrays))


def seen(result):
    return {"history": result.history, "weights": checksum(result.model)} if world.rank == 0 else None


def plain_loop():
    """One training, and the framework's own loop."""
    data = np.load(FOLDER / "data.npz")
    plain_losses = import_module(f"tests.mpi_learn.pipeline.{FRAMEWORK}_models").plain_losses
    return {
        "plain": plain_losses(data["x"], data["y"], BATCH, EPOCHS, SGD["learning_rate"], SEED),
        "stages": losses_of(SGD, "1f1b", 2, 1, half),
    }


def losses_of(optimizer, schedule, stages, replicas, comm):
    wanted = configuration("build", stages, BATCH // replicas, optimizer=optimizer)
    wanted["pipeline"] |= {"schedule": schedule}
    return train(wanted, comm).history["loss"]


def losses():
    """All trainings that are compared with one process; both halves of the ranks make the same one at a time."""
    found = {}
    for optimizer in (SGD, ADAM):
        alone = train(configuration("build", 2, optimizer=optimizer), MPI.COMM_SELF)
        found[f"alone {optimizer['name']}"] = alone.history["loss"]
        for schedule in ("gpipe", "1f1b"):
            for stages, replicas, comm in ((2, 1, half), (2, 2, world), (4, 1, world)):
                name = f"{optimizer['name']} {schedule} {stages} x {replicas}"
                found[name] = losses_of(optimizer, schedule, stages, replicas, comm)
    return found


def listed():
    """A list of stages, saved and loaded; and the same as functions."""
    result = train(configuration("build_stages", 2, optimizer=ADAM), half)
    whole = train(configuration("build_chain", 2, optimizer=ADAM), half)
    alone = train(configuration("build_stages", 2, optimizer=ADAM), MPI.COMM_SELF)
    built = train(configuration("build_functions", 2, optimizer=ADAM), half)
    found = {"listed": seen(result), "alone": seen(alone), "sequence": seen(whole), "functions": seen(built)}
    if world.rank == 0:
        found["file"] = str(result.save_model(FOLDER / "listed"))
    return found


def normalised():
    """Batch normalisation with and without replicas; one micro-batch is a whole batch."""
    wanted = configuration("build_normalised", 2, optimizer=SGD, pipeline={"stages": 2, "micro_batches": 1})
    return {"stages": seen(train(wanted, half)), "alone": seen(train(wanted, MPI.COMM_SELF))}


def recomputed():
    """Activation checkpointing."""
    return {
        name: train(configuration("build", 2, optimizer=ADAM, gradient_checkpointing=wanted), half).history["loss"]
        for name, wanted in (("plain", False), ("checkpointing", True))
    }


def resumed():
    """A training that is interrupted after 2 of 4 epochs, with the best weights of early stopping."""
    both = {"optimizer": ADAM, "epochs": 4, "early_stopping": {"patience": 9}}
    checkpoint = {"checkpoint": {"path": str(FOLDER / "checkpoint"), "every": 1}}
    through = train(configuration("build", 2, BATCH // REPLICAS, **both), world)
    train(configuration("build", 2, BATCH // REPLICAS, **(both | {"epochs": 2}), **checkpoint), world)
    again = train(configuration("build", 2, BATCH // REPLICAS, **both, **checkpoint), world)
    start = {"checkpoint": {"path": str(FOLDER / "other"), "start_from": str(FOLDER / "checkpoint")}}
    started = train(configuration("build", 2, BATCH // REPLICAS, **(both | {"epochs": 5}), **start), world)
    error = ""
    if world.rank == 0:  # which holds all stages then
        error = error_of(configuration("build", 2, **both, **checkpoint), MPI.COMM_SELF)
    return {
        "through": seen(through),
        "again": seen(again),
        "before": again.epochs_before,
        "started": started.epochs_before,
        "error": error,
    }


def timed():
    """The layers of stages: when the first layer is slow, continued when the last one is, and from the beginning."""
    found = {}
    for name, slow, epochs, folder in (("first", 0, 1, "timed"), ("again", 3, 2, "timed"), ("fresh", 3, 1, "fresh")):
        os.environ["SLOW"] = str(slow)
        section = {"path": str(FOLDER / folder)}
        split = {"stages": 2, "micro_batches": 2, "split": "time"}
        wanted = configuration("build_slow", 2, N_SAMPLES, epochs=epochs, pipeline=split, checkpoint=section)
        notes = []
        n_epochs = len(train(wanted, world, on_note=notes.append).history["loss"])
        notes = [note for note in notes if "the stages have" in note]
        found[name] = n_epochs, saved_layers_of_stages(Checkpoint(**section)), notes
    return found


class Counting:
    """A communicator that counts the bytes it sends."""

    n_bytes = 0

    def __init__(self, comm):
        self._comm = comm

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def Isend(self, message, dest, tag):  # noqa: N802 - the name in mpi4py
        Counting.n_bytes += message.nbytes
        return self._comm.Isend(message, dest=dest, tag=tag)


def compressed():
    """Losses for each form of the messages, and the bytes that each stage sends in an epoch and its validation."""
    found = {}
    begin = Link.__init__
    for name in ("none", "bfloat16", "float16", "int8"):
        section = {"stages": 2, "micro_batches": 3, "compression": name}
        sent = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Link, "__init__", lambda self, chain, other: begin(self, Counting(chain), other))
            trained = configuration("build_stages", 2, optimizer=SGD, pipeline=section)
            result = train(trained, half, on_epoch=lambda epoch, metrics: sent.append(Counting.n_bytes))  # noqa: B023
        still = configuration("build_stages", 2, optimizer=SGD | {"learning_rate": 1e-30}, pipeline=section, epochs=1)
        found[name] = {
            "history": result.history,
            "still": train(still, half).history,
            "bytes": half.allgather(sent[2] - sent[1]),
        }
    if FRAMEWORK == "torch":
        data = np.load(FOLDER / "data.npz")
        rounded = import_module("tests.mpi_learn.pipeline.torch_models").rounded_losses
        found["rounded"] = rounded(data["x"], data["y"], BATCH, EPOCHS, SGD["learning_rate"], SEED)
    return found


def failing():
    """The error of every rank if one stage of one replica raises, in a step and in validation."""
    found = {}
    for stage in (0, 1):
        for training in (True, False):
            wanted = configuration("build_failing", 2, BATCH // REPLICAS, epochs=12)
            wanted["parameters"] = {"stage": stage, "training": training}
            found[f"{stage} {training}"] = world.allgather(error_of(wanted, world))
    return found


def failing_elsewhere():
    """The error of every rank if one rank fails before or after the passes of a step, or cannot read a batch."""
    kind = getattr(import_module(f"mpi_learn.models.{FRAMEWORK}_.stages"), f"{FRAMEWORK.title()}Stage")
    places = {
        "begin": (kind, "begin"),
        "sums": (kind, "sums"),
        "step": (kind, "step"),
        "batch": (streamed_batches.StreamedBatches, "_batches"),
        "validation": (evaluation, "validation_batches"),
    }
    found = {}
    for name, place in places.items():
        for rank in (0, world.size - 1):
            wanted = configuration("build", 2, BATCH // REPLICAS, epochs=2)
            wanted["data"] |= {"train": [str(FOLDER / "data.h5")], "memory": "stream"}
            with pytest.MonkeyPatch.context() as patch:
                if world.rank == rank:
                    patch.setattr(*place, failing_at(2, getattr(*place)))
                found[f"{name} {rank}"] = world.allgather(error_of(wanted, world))
    return found


def failing_at(n, function):
    """The function, which raises in call number `n`, or at its item `n`."""
    calls = iter(range(1, 10**6))

    def items(made):
        for number, item in enumerate(made, 1):
            if number == n:
                raise OSError("boom")
            yield item

    def call(*arguments, **options):
        made = function(*arguments, **options)
        if isinstance(made, Iterator):
            return items(made)
        if next(calls) == n:
            raise OSError("boom")
        return made

    return call


def refused():
    """The errors before the first step."""
    cases = {
        "shared": configuration("build_shared", 2),
        "two tensors": configuration("build_two_tensors", 2),
        "tangled": configuration("build_tangled", 2),
        "too many": configuration("build", 2, pipeline={"stages": 2, "split": [3, 3]}),
        "list": configuration("build_stages", 2, parameters={"n": 4}),
    }
    for how in ("raises", "nothing", "host"):
        cases[how] = configuration("build_broken", 2, parameters={"how": how})
    # a model of three classes, and a total batch, with which stages compute before the first step
    cases["labels"] = configuration("build", 2, {"total": BATCH})
    cases["labels"]["data"]["train"] = [str(FOLDER / "labels.npz")]
    # with batch statistics, each stage says that results depend on the number of ranks; it is trained
    cases["normalised"] = configuration("build_normalised", 2, {"total": BATCH})
    if FRAMEWORK == "keras":
        cases["penalised"] = configuration("build_penalised", 2)
    return {name: world.allgather(error_of(wanted, world)) for name, wanted in cases.items()}


def error_of(wanted, comm):
    try:
        train(wanted, comm)
    except MPILearnError as error:
        return str(error)
    return "no error"


found = {name: globals()[name]() for name in sys.argv[3:]}
if world.rank == 0:
    print(json.dumps(found))
