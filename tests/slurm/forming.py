"""Run under mpirun on several nodes: all ranks but the first form a block, as in a search, which then has no trials.

Each rank prints a JSON line after every step, which `tests.slurm.starts` reads.
"""

import faulthandler
import json
import os
import sys
import threading
import time
from pathlib import Path

BEGAN_S, LIMIT_S = map(float, sys.argv[1:3])
"""The Unix time at which mpirun was started, and the time limit of the whole start, in seconds."""

REMAINING_S = BEGAN_S + LIMIT_S - 5 - time.time()
faulthandler.dump_traceback_later(REMAINING_S)  # shortly before the start is given up

from mpi4py import MPI  # noqa: E402

from mpi_learn.mpi import communicators  # noqa: E402
from mpi_opt.core.objective import TrialSettings  # noqa: E402
from mpi_opt.messages.links import MPICoordinatorLink, MPIWorkerLink  # noqa: E402
from mpi_opt.messages.messages import Dismissal, Join, Ready  # noqa: E402
from mpi_opt.worker import watchdog  # noqa: E402
from mpi_opt.worker.worker import Worker  # noqa: E402

watchdog.LISTEN_S = float(os.environ.get("POLL_S", "0.01"))  # often, so that some polls are during the creation
create_from_group = communicators._create_from_group
world = communicators.duplicate(MPI.COMM_WORLD)


def report(step: str) -> None:
    """Prints the seconds since the start, those on a processor, and those in which a processor was not available."""
    ran_ns, queued_ns, _ = map(int, Path("/proc/self/schedstat").read_text().split())
    times = {"s": time.time() - BEGAN_S, "ran_s": ran_ns / 1e9, "queued_s": queued_ns / 1e9}
    rounded = {name: round(value, 3) for name, value in times.items()}
    sys.stdout.write(json.dumps({"rank": world.rank, "step": step, **rounded}) + "\n")
    sys.stdout.flush()


def create_and_report(group: MPI.Group, name: str) -> MPI.Comm:
    """`communicators._create_from_group`, with a report before and after."""
    report("met")
    comm = create_from_group(group, name)
    report("created")
    return comm


class IdleObjective:
    """An objective without trials."""

    notes = ()

    def prepare(self, comm: MPI.Comm, parameters: dict) -> None:
        """Checks that the ranks of the block can communicate."""
        report("formed")
        assert comm.allreduce(1) == world.size - 1


def coordinate() -> None:
    """Forms one block of all other ranks, and dismisses them when it is ready."""
    link, members = MPICoordinatorLink(world), tuple(range(1, world.size))
    for member in members:
        link.send(member, Join(0, members))
    while not (messages := link.receive(1.0, lambda: False)):
        pass
    if not isinstance(messages[0][1], Ready):
        print(messages, flush=True)
        world.Abort(1)
    for member in members:
        link.send(member, Dismissal())
    link.send_result(None, None)


def work() -> None:
    """Serves in the block."""
    communicators._create_from_group = create_and_report
    link = MPIWorkerLink(world)
    guard = watchdog.Watchdog(link, may_end_process=True)
    guard.open()
    Worker(link, guard, IdleObjective(), TrialSettings(0)).serve_or_die()
    guard.close()
    link.receive_result()


report("initialised")
late = threading.Timer(REMAINING_S, report, ["late"])  # tells a rank that runs or is queued from one that sleeps
late.start()
work() if world.rank > 0 else coordinate()
report("ended")
late.cancel()
faulthandler.cancel_dump_traceback_later()
