"""The objective of `soak.py`: it sleeps, and some trials fail or hang in ways that are typical of user code."""

from __future__ import annotations

import ctypes
import random
import signal
import time

FAILING, HANGING = 0.10, 0.05

IN_C = 0.02
"""The fraction of the hanging trials that hang in C code, which no exception interrupts. Each costs its rank."""


def fate(number: int) -> str:
    """The outcome of a trial, which depends only on its number."""
    draw = random.Random(number).random
    if (first := draw()) < FAILING:
        return "raise"
    if first >= FAILING + HANGING:
        return "nap"
    if draw() < IN_C:
        return "c_code" if draw() < 0.5 else "c_code_with_gil"
    return "sleep" if draw() < 0.9 else "wait_for_nobody"


def nap(trial) -> float:
    """Sleeps one to three seconds in steps, reports after each step, and ends with a collective."""
    fate_of_it, is_last = fate(trial.number), trial.comm.rank == trial.comm.size - 1
    seconds = random.Random(trial.number).uniform(1, 3)
    for step in range(5):
        time.sleep(seconds / 5)
        trial.report(step, trial.parameters["x"] + step)
        if step == 2 and is_last:
            misbehave(fate_of_it, trial)
    return trial.comm.allreduce(trial.parameters["x"]) / trial.comm.size


def misbehave(kind: str, trial) -> None:
    """Fails or hangs on one rank of the block, as `kind` says."""
    if kind == "raise":
        raise ValueError(f"trial {trial.number} fails")
    if kind == "sleep":
        time.sleep(10_000)
    elif kind == "wait_for_nobody":
        while not trial.comm.iprobe(source=0, tag=77):
            time.sleep(0.01)
    elif kind == "c_code":  # ignores signals
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        ctypes.CDLL(None).sleep(10_000)
    elif kind == "c_code_with_gil":  # also blocks the other threads
        ctypes.PyDLL(None).sleep(10_000)


def short(trial) -> float:
    """Sleeps 0.2 s on average."""
    time.sleep(random.Random(trial.number).uniform(0, 0.4))
    return trial.parameters["x"] ** 2


def agreed(trial) -> float:
    """x², on which all ranks agree after 0.3 s on average."""
    for _ in range(3):
        time.sleep(random.Random(trial.number).uniform(0.05, 0.15))
        trial.comm.Barrier()
    return trial.comm.allreduce(trial.parameters["x"] ** 2) / trial.comm.size


def elastic(trial) -> float:
    """x² if each epoch counts exactly once, on numbers of ranks that change. Every fourth trial has 40 epochs."""
    epoch, value, total = *(trial.state or (0, 0.0)), 40 if trial.number % 4 == 0 else 4
    while epoch < total:
        time.sleep(0.4 / trial.comm.size)
        trial.comm.Barrier()
        epoch += 1
        value += 2 * epoch / (total * (total + 1))
        trial.resize(epoch, total, lambda epoch=epoch, value=value: (epoch, value))
    return value * trial.parameters["x"] ** 2
