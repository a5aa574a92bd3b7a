"""The messages between coordinator and workers, over MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world import in_world

PROGRAM = """
import gc, sys, time
import numpy as np
from mpi4py import MPI
from mpi_opt.core.figures import Figures, Measured
from mpi_opt.core.trial import Outcome, Proposal
from mpi_opt.messages.messages import Assignment
from mpi_opt.messages.links import MPICoordinatorLink, MPIWorkerLink

N = 1_000_000  # numbers: a message of 9 MB, far above the size that MPI sends without waiting for the receiver
world = MPI.COMM_WORLD

def outcome(number):
    figures = Figures(loss=Measured(1.0, None))
    fold = Outcome(0, "complete", figures, 1.0, fold=0, history={"loss": [number + 0.5] * N})
    return Outcome(number, "complete", figures, 1.0, [fold])

def assignment(rank):
    return Assignment(Proposal(rank, {f"x{index}": rank for index in range(200_000)}))

def in_memory_of_others():
    gc.collect()
    return [np.full(N, -1.0) for _ in range(5)]  # takes the memory of a message that nobody holds any more

if world.rank:
    link = MPIWorkerLink(world)
    for number in (world.rank, world.rank + 10):
        link.send(outcome(number))
        in_memory_of_others()
    received = link.receive(lambda: None)
    assert received == assignment(world.rank), "another assignment"
else:
    link = MPICoordinatorLink(world)
    time.sleep(0.5)  # the workers have sent, and continue if they can
    found = []
    while len(found) < 2 * (world.size - 1):
        found += link.receive(1.0, lambda: False)
    for rank, message in found:
        assert message == outcome(message.number), "another outcome"
    assert [m.number for r, m in found if r == 1] == [1, 11], "in the order in which they were sent"
    for rank in range(1, world.size):
        link.send(rank, assignment(rank))
    in_memory_of_others()
print(f"rank {world.rank} has all messages", flush=True)
world.Barrier()
"""


@pytest.mark.mpi
def test_large_messages_arrive_as_they_were_sent(tmp_path: Path) -> None:
    """Outcomes with long histories, and proposals of many hyperparameters, while the receiver is busy."""
    (tmp_path / "messages.py").write_text(PROGRAM)
    done = in_world(3, str(tmp_path / "messages.py"), cwd=tmp_path, timeout=20)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} has all messages" for rank in range(3)]
