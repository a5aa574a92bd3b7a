"""Run under mpirun on 3 ranks: communicators of some of them, and duplicates that keep messages apart."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from mpi4py import MPI

from mpi_learn.errors import TrainingError
from mpi_learn.mpi import communicators, messaging

world = MPI.COMM_WORLD
RANKS = [2, 0]
LIMIT_S = 30.0


def check_group_of() -> None:
    if world.rank in RANKS:
        part = communicators.from_ranks(world, RANKS, "some ranks")
        assert part.allgather(world.rank) == RANKS


def check_where_it_is_unsupported() -> None:
    """As under ``srun --mpi=pmix`` with Open MPI 5, or with a library older than MPI 4."""
    supported = communicators._create_from_group
    for error in (MPI.Exception(MPI.ERR_UNSUPPORTED_OPERATION), NotImplementedError()):

        def unsupported(group, name, error=error):
            raise error

        communicators._create_from_group = unsupported
        check_group_of()
    communicators._create_from_group = supported


def check_that_other_errors_are_raised() -> None:
    def failing(group, name):
        raise MPI.Exception(MPI.ERR_OTHER)

    supported, communicators._create_from_group = communicators._create_from_group, failing
    try:
        communicators.from_ranks(world, [0, 1], "fails")
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_OTHER
    else:
        raise AssertionError("the error was not raised")
    communicators._create_from_group = supported


def check_private() -> None:
    """An earlier message of the caller is neither received by MPI Learn nor hidden from a receive of any message."""
    if world.rank == 0:
        request = world.isend("the caller's", dest=1, tag=5)
    with communicators.private(world) as comm:
        if comm.rank == 0:
            comm.send("private", dest=1, tag=6)
        if comm.rank == 1:
            assert messaging.receive(comm)[0] == "private"
            assert messaging.receive(world)[0] == "the caller's"
    if world.rank == 0:
        request.wait()


def check_that_a_private_one_is_freed() -> None:
    with communicators.private(world) as comm:
        pass
    assert comm == MPI.COMM_NULL
    try:
        with communicators.private(world) as comm:
            raise TrainingError("on which all ranks have agreed", rank=0, host="", traceback="")
    except TrainingError:
        assert comm == MPI.COMM_NULL
    try:
        with communicators.private(world) as comm:
            raise ValueError
    except ValueError:
        assert comm != MPI.COMM_NULL  # it may hold messages


def check_that_an_outbox_does_not_wait_for_the_receiver() -> None:
    """Messages longer and shorter than what MPI copies at once, to a rank that does not call MPI until all are sent."""
    messages = [bytes(size) for size in (100, 1_000, 1_000_000)]
    folder = world.bcast(tempfile.mkdtemp() if world.rank == 0 else None)
    are_sent = Path(folder, "are_sent")
    if world.rank == 0:
        outbox = messaging.Outbox(world)
        for message in messages:
            outbox.send(message, 1, tag=7)
        are_sent.touch()
        world.recv(source=1, tag=8)  # an outbox sends while its rank calls MPI
        shutil.rmtree(folder)
    if world.rank == 1:
        last = time.monotonic() + LIMIT_S
        while not are_sent.exists():
            assert time.monotonic() < last, "the sender waits for the receiver"
            time.sleep(0.01)
        assert [messaging.receive(world, source=0, tag=7)[0] for _ in messages] == messages
        world.send(None, dest=0, tag=8)


check_group_of()
check_where_it_is_unsupported()
check_that_other_errors_are_raised()
check_private()
check_that_a_private_one_is_freed()
check_that_an_outbox_does_not_wait_for_the_receiver()
assert communicators.threads_may_call() == (MPI.Query_thread() == MPI.THREAD_MULTIPLE)
world.Barrier()
if world.rank == 0:
    print("all is as it should be", flush=True)
