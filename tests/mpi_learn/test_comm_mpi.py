"""Ranks that fail or die at an unfavourable moment do not block other ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mpirun import SURVIVES_LOST_RANKS, mpirun
from tests.world import in_world

pytestmark = pytest.mark.mpi
TIMEOUT_S = 30
IMPORTS = (
    "import os, sys, time; from mpi4py import MPI; from mpi_learn.mpi import communicators, messaging; "
    "from mpi_learn.errors import TrainingError; from mpi_learn.training.checkpoints import checkpoint_file\n"
    "world = MPI.COMM_WORLD\n"
)

RAISED = {
    "an exit": "sys.exit('no GPU here')",
    "an error without words": "raise type('Odd', (Exception,), {'__str__': lambda self: 3})()",
    "a cancelled task": "raise __import__('asyncio').CancelledError",
}


@pytest.mark.parametrize("what", RAISED)
def test_whatever_one_rank_raises_all_ranks_learn_of_it(what):
    program = (
        "try:\n"
        "    with communicators.agreed_errors(world):\n"
        f"        if world.rank == 1: {RAISED[what]}\n"
        "except TrainingError as error: print(error.rank, flush=True)\n"
    )
    done = in_world(3, "-c", IMPORTS + program, timeout=TIMEOUT_S)
    assert done.stdout.split() == ["1"] * 3, done.stderr


def test_an_error_that_cannot_be_sent_is_raised_on_all_ranks():
    program = (
        "from mpi_learn.errors import UserError\n"
        "class Local(UserError):\n"
        "    def __reduce__(self): raise TypeError('cannot pickle a generator')\n"
        "try:\n"
        "    with communicators.agreed_errors(world):\n"
        "        if world.rank == 1: raise Local('no such sample')\n"
        "except TrainingError as error: print(error.rank, error.reason, flush=True)\n"
    )
    done = in_world(2, "-c", IMPORTS + program, timeout=TIMEOUT_S)
    assert done.stdout.splitlines() == ["1 Local: no such sample"] * 2, done.stderr


def test_an_unreadable_part_of_a_checkpoint_blocks_no_rank():
    program = (
        "def load_own(folder, rank):\n"
        "    if rank == 1: raise OSError('damaged')\n"
        "    return {}\n"
        "checkpoint_file.load_rank_arrays = load_own\n"
        "try:\n"
        "    with communicators.agreed_errors(world): checkpoint_file.scatter_arrays(world, None, world.size)\n"
        "except TrainingError as error: print(error.rank, flush=True)\n"
    )
    done = in_world(3, "-c", IMPORTS + program, timeout=TIMEOUT_S)
    assert done.stdout.split() == ["0"] * 3, done.stderr


def test_rank_0_without_memory_for_the_arrays_of_a_rank_blocks_no_rank():
    program = (
        "import numpy as np\n"
        "def allocate(kinds): raise MemoryError('too large')\n"
        "checkpoint_file._uninitialised = allocate\n"
        "try:\n"
        "    own = {'a': np.zeros(10**6)}\n"
        "    with communicators.agreed_errors(world), checkpoint_file.gather_arrays(world, own) as parts:\n"
        "        list(parts)\n"
        "except TrainingError as error: print(error.rank, error.reason, flush=True)\n"
    )
    done = in_world(3, "-c", IMPORTS + program, timeout=TIMEOUT_S)
    assert done.stdout.splitlines() == ["0 MemoryError: too large"] * 3, done.stderr


def test_communicators_of_some_ranks_and_private_ones_keep_their_messages_apart():
    done = in_world(3, "-m", "tests.mpi_learn.programs.communicators", timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert "all is as it should be" in done.stdout


@pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks")
def test_a_death_while_another_is_acknowledged_is_not_forgotten():
    program = (
        "world.Set_errhandler(MPI.ERRORS_RETURN)\n"
        "if world.rank == 1: os.kill(os.getpid(), 9)\n"
        "if world.rank == 2:\n"
        "    messaging.receive(world, source=0)\n"
        "    os.kill(os.getpid(), 9)\n"
        "class Dying:\n"  # the world, in which rank 2 dies when the first call has returned
        "    def __getattr__(self, name):\n"
        "        found = getattr(world, name)\n"
        "        return found if name == 'group' else lambda *a: (found(*a), death())[0]\n"
        "def death():\n"
        "    global death\n"
        "    death = lambda: None\n"
        "    world.send(0, dest=2)\n"
        "    while world.Get_failed().size < 2: world.Iprobe(source=0)\n"
        "lost = set()\n"
        "while lost != {1, 2}:\n"
        "    try: messaging.poll(world)\n"
        "    except messaging.RankLost: lost |= messaging.acknowledge(Dying())\n"
        "print('all are known', flush=True); os._exit(0)\n"
    )
    done = mpirun(3, "-c", IMPORTS + program, timeout=TIMEOUT_S)
    assert "all are known" in done.stdout, done.stderr


@pytest.mark.skipif(not SURVIVES_LOST_RANKS, reason="this MPI does not survive lost ranks")
def test_communicators_are_created_after_a_death_during_a_creation():
    program = (
        "from mpi_learn.mpi import communicators\n"
        "world.Set_errhandler(MPI.ERRORS_RETURN)\n"
        "if world.rank > 1:\n"
        "    part = communicators.split(communicators.from_ranks(world, [2, 3], 'first'), 0)\n"
        "    if world.rank == 3: time.sleep(0.3); os.kill(os.getpid(), 9)\n"
        "    try: part.Dup(); print('the death was not noticed')\n"
        "    except messaging.FAILURES: print('the creation failed', flush=True)\n"
        "if world.rank in (1, 2):\n"
        "    part = communicators.split(communicators.from_ranks(world, [1, 2], 'second'), 0)\n"
        "    print('of', part.size, flush=True)\n"
        "    time.sleep(0.5)\n"
        "os._exit(0)\n"
    )
    done = mpirun(4, "-c", IMPORTS + program, timeout=TIMEOUT_S)
    assert sorted(done.stdout.splitlines()) == ["of 2", "of 2", "the creation failed"], done.stderr


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("from mpi_opt.worker.watchdog import end_process; end_process('it must')", -9),
        (
            "from mpi_learn.mpi import process_end; "
            "process_end.exit_status = 5; process_end.skip_finalize(process_end.MPI.COMM_SELF)",
            5,
        ),
    ],
)
def test_a_process_ends_correctly_after_user_code_has_closed_its_output(closed, end, status):
    program = f"import sys; sys.{closed} = open('/dev/null', 'w'); sys.{closed}.close(); {end}"
    assert subprocess.run([sys.executable, "-c", program], timeout=TIMEOUT_S, check=False).returncode == status
