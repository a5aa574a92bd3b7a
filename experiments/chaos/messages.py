"""Measures the cost of the protection against lost ranks for one message and one Allreduce of a gradient.

Run it on an otherwise quiet machine, in the project's folder: python experiments/chaos/messages.py [--turns 40]
Two pairs of ranks, one with protection and one without, take turns of a quarter of a second. This is less noisy than a
comparison of whole searches. It is sufficient, because in both cases this project executes the same code for each trial
and each step. Prints the rows of this experiment in README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from cost import flags, interval

from mpi_learn.job.launch import find_mpirun, launch_environment
from mpi_learn.job.started_by import is_launched

N_TRIPS, N_SUMS, N_PARAMETERS = 3000, 300, 235_146
MESSAGE = {"number": 1234, "fold": 0, "parameters": {"learning_rate": 1e-3, "units": 128, "activation": "relu"}}


def take_turns() -> None:
    """Runs on both ranks. At each "go" of the driver it prints the times of a round trip and of an Allreduce, in µs."""
    import numpy as np
    from mpi4py import MPI

    from mpi_learn.mpi import communicators, messaging
    from mpi_learn.mpi.communicators import sum_in_place

    world = communicators.duplicate(MPI.COMM_WORLD)
    both, gradient = communicators.group_of(world, [0, 1], "both"), np.zeros(N_PARAMETERS, np.float32)

    def received() -> None:
        while messaging.poll(world, tag=1) is None:
            os.sched_yield()

    while messaging.broadcast_sleeping(world, sys.stdin.readline() if world.rank == 0 else None) == "go\n":
        began = time.perf_counter()
        for _ in range(N_TRIPS):
            if world.rank == 0:
                messaging.send_if_alive(world, MESSAGE, 1, 1)
                received()
            else:
                received()
                messaging.send_if_alive(world, MESSAGE, 0, 1)
        between = time.perf_counter()
        for _ in range(N_SUMS):
            sum_in_place(both, gradient)
        if world.rank == 0:
            print(json.dumps([1e6 * (between - began) / N_TRIPS, 1e6 * (time.perf_counter() - between) / N_SUMS]))
            sys.stdout.flush()


def started(is_protected: bool) -> subprocess.Popen[str]:
    """Two ranks, each on its own core."""
    mpirun = find_mpirun()
    command = [mpirun, *flags(is_protected), "-np", "2", sys.executable, __file__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=launch_environment())


def measured(program: subprocess.Popen[str]) -> list[float]:
    """The times that one turn measured, in µs."""
    program.stdin.write("go\n")
    program.stdin.flush()
    return json.loads(program.stdout.readline())


def main() -> None:
    """Measures all turns and prints the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=40)
    turns = parser.parse_args().turns
    programs = {is_protected: started(is_protected) for is_protected in (True, False)}
    for program in programs.values():
        measured(program)
    pairs = []
    for turn in range(turns):
        found = {which: measured(programs[which]) for which in ((True, False) if turn % 2 else (False, True))}
        pairs.append(list(zip(found[True], found[False], strict=True)))
    for program in programs.values():
        program.stdin.write("end\n")
        program.stdin.flush()
        program.wait(60)
    for what, values in zip(
        ("round trip of a message", "Allreduce of 235,146 numbers"), zip(*pairs, strict=True), strict=True
    ):
        with_it, without = (statistics.median(column) for column in zip(*values, strict=True))
        more, low, high = (100 * (ratio - 1) for ratio in interval([one / other for one, other in values]))
        print(
            f"| {what} with and without, medians of {turns} turns | {with_it:,.1f} µs, {without:,.1f} µs: "
            f"{more:+.1f} % (95 %: {low:+.1f} … {high:+.1f} %) |"
        )


if __name__ == "__main__":
    take_turns() if is_launched() else main()
