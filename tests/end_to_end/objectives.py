"""Objectives for searches in tests. Some work; others fail, hang or die in ways that are typical of user code."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI


def parabola(trial) -> float:
    """(x - 1)², agreed on by all ranks of the block."""
    return trial.comm.allreduce((trial.parameters["x"] - 1) ** 2, op=MPI.MAX)


def little_loaded(trial) -> float:
    """Fails on a rank that has imported libraries which rank 0 alone needs."""
    loaded = {"pydantic", "typer", "rich", "yaml", "sqlalchemy"} & set(sys.modules)
    assert not loaded, loaded
    return parabola(trial)


def folded(trial) -> float:
    """The number of validation samples of this fold, and so known for every fold."""
    _, validation = trial.split(50)
    return float(len(validation) + trial.fold)


def learning(trial) -> float:
    """Reports twelve values that rise towards 2 - x; the epochs of a trial take 10 ms each."""
    best = 2.0 - trial.parameters["x"]
    for step in range(12):
        value = best - 0.7 ** (step + 1)
        trial.report(step, value)
        time.sleep(0.01)
        if trial.should_stop():
            break
    return value


def uneven_folds(trial) -> float:
    """(x - 1)² plus an offset of the fold, which is much larger, plus noise of trial and fold.

    In trials 20, 21 and 22 of a block of several ranks one of them fails, when the others have ended their first fold.
    """
    trial.comm.Barrier()
    if trial.comm.size > 1 and trial.fold == 0 and trial.comm.rank == trial.number - 20:
        raise ValueError("this rank says no")
    time.sleep(0.002 * ((trial.number * 7) % 5))
    noise = np.random.default_rng([trial.number, trial.fold]).normal(0, 0.02)
    return (trial.parameters["x"] - 1) ** 2 + [0.0, 5.0, 1.0, 3.0, 2.0][trial.fold] + noise


def reporting(trial) -> float:
    for step in range(5):
        trial.report(step, trial.parameters["x"] + step)
        if trial.should_stop():
            break
    return trial.parameters["x"]


def nap(trial) -> float:
    time.sleep(0.05)
    return trial.parameters["x"]


def unhurried(trial) -> float:
    """All ranks of the block agree after a pause."""
    time.sleep(0.15)
    return trial.comm.allreduce(trial.parameters["x"])


def gated(trial) -> float:
    """Waits until the file `gate` exists."""
    while not Path("gate").exists():
        time.sleep(0.02)
    return trial.parameters["x"]


def talkative(trial) -> float:
    """Prints more than fits on the full disk of the test."""
    print("x" * 10_000, flush=True)
    return trial.parameters["x"]


def hours(trial) -> float:
    """Trial 2 takes longer than the test."""
    time.sleep(3600 if trial.number == 2 else 0)
    return trial.parameters["x"]


def long_nap(trial) -> float:
    """Longer than the scatter of timings: a sixth of a limit of 3 s."""
    time.sleep(0.5)
    return trial.parameters["x"]


def dying(trial) -> float:
    """Twenty collectives; in trials 3 and 5 the last rank of the block dies in the middle, the first time only."""
    total = 0.0
    for step in range(20):
        buffer = np.full(1000, trial.parameters["x"] + trial.comm.rank)
        trial.comm.Allreduce(MPI.IN_PLACE, buffer)
        total += float(buffer[0])
        time.sleep(0.01)
        is_victim = trial.number in (3, 5) and trial.comm.rank == trial.comm.size - 1
        if step == 10 and is_victim and _first_time(f"died-{trial.number}"):
            os.kill(os.getpid(), signal.SIGKILL)
    return total


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot even say what it is")


def failing(trial) -> float:
    """Trials 1 to 9 fail, each in its own way; the others wait for one another."""
    if trial.number == 1 and trial.comm.rank == trial.comm.size - 1:
        raise ValueError("this rank says no")
    if trial.number == 2:
        sys.exit(3)
    if trial.number == 3:
        return float("nan")
    if trial.number == 4:
        return "a word"
    if trial.number == 5:
        raise MemoryError
    if trial.number in (6, 7) and trial.comm.rank == trial.comm.size - 1:
        raise asyncio.CancelledError("cancelled") if trial.number == 6 else Unspeakable
    if trial.number == 8 and trial.comm.rank == trial.comm.size - 1:
        trial.comm.Send(np.zeros(8), dest=77, tag=5)
    if trial.number == 9:
        raise ValueError("so much " * 10**6)
    return trial.comm.allreduce(trial.parameters["x"])


def hanging(trial) -> float:
    """Trial 1 sleeps, trial 2 computes forever, trial 3 waits for a message that is never sent."""
    if trial.number == 1 and trial.comm.rank == 0:
        time.sleep(1000)
    while trial.number == 2:
        pass
    if trial.number == 3 and trial.comm.rank == trial.comm.size - 1:
        trial.comm.recv(source=0, tag=77)
    return trial.comm.allreduce(trial.parameters["x"])


def fatal(trial) -> float:
    """Trial 1 kills its process in every attempt."""
    if trial.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return trial.parameters["x"]


def raising_late(trial) -> float:
    """The last rank fails every other trial when the others wait for it already, in the block or in a part of it."""
    part = trial.comm.Dup()
    if trial.number % 2 and trial.comm.rank == trial.comm.size - 1:
        time.sleep(0.2)
        raise ValueError("this rank says no")
    waits_in = part if trial.number % 4 == 1 else trial.comm
    return waits_in.allreduce(trial.parameters["x"])


def dozing(trial) -> float:
    """One rank of every third trial sleeps forever; the others wait for it."""
    if trial.number % 3 == 1 and trial.comm.rank == trial.comm.size - 1:
        time.sleep(1000)
    return trial.comm.allreduce(trial.parameters["x"])


def stuck(trial) -> float:
    """Trial 1 sleeps in C code that keeps the interpreter locked: nothing in Python can end it."""
    if trial.number == 1 and trial.comm.rank == 0:
        ctypes.PyDLL(None).sleep(1000)
    return trial.comm.allreduce(trial.parameters["x"])


def _first_time(name: str) -> bool:
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def ragged(trial) -> float:
    """(x - 1)² after a random time; fails at both ends of the range, in two ways."""
    x = trial.parameters["x"]
    time.sleep(random.SystemRandom().uniform(0.0, 0.1))
    if x > 1.8:
        raise ValueError("too large")
    return float("nan") if x < 0.1 else (x - 1) ** 2


def accuracy_and_cost(trial) -> dict[str, float]:
    """Two conflicting figures of merit. Each fold away from the middle one changes the first by 0.1."""
    x = trial.parameters["x"]
    return {"cost": x, "accuracy": 1 - (x - 1) ** 2 + 0.1 * (trial.fold - (trial.folds - 1) / 2)}


def one_of_two(trial) -> float:
    """Returns one of two figures of merit."""
    return 1.0


def lingering(trial) -> float:
    """The first trial of each rank leaves an exit handler, a folder and a child; some leave more, which never ends."""
    rank = MPI.COMM_WORLD.rank
    if _first_time(f"began-{rank}"):
        folders.append(tempfile.TemporaryDirectory(prefix="folder-", dir="."))
        atexit.register(Path(f"handled-{rank}").touch)
        forking = multiprocessing.get_context("fork")
        children = [forking.Process(target=time.sleep, args=(1000,), daemon=True)]
        if rank == 2:
            threading.Thread(target=time.sleep, args=(1000,), name="endless").start()
        if rank == 3:
            children.append(forking.Process(target=time.sleep, args=(1000,)))
        for child in children:
            child.start()
            Path(f"child-{child.pid}").touch()
    time.sleep(0.2)
    return trial.parameters["x"]


folders: list[tempfile.TemporaryDirectory] = []
