"""Sends and receives Python objects without busy waiting, and finds lost ranks.

A rank that waits in ``recv`` or ``wait`` occupies a whole core. Ranks that may wait long for one another therefore
wait with `receive`, which probes and sleeps for increasing times. Blocking collectives are used inside a training
step, where all ranks arrive together.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from mpi_learn.mpi.library import MPI

ERROR_CLASSES = tuple(getattr(MPI, name, -1) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED"))
"""MPI's error classes for a failed process and for a communicator that was revoked because of one."""

FIRST_RELIABLE = (5, 0, 11)
"""The first version of Open MPI in which the tests of lost ranks pass. With 5.0.8 to 5.0.10, searches hang."""


class RankLost(Exception):
    """A rank of a communicator has died, or the communicator was revoked because a rank died."""


FAILURES = (MPI.Exception, RankLost)
"""The exceptions of communication over a broken communicator."""


def acknowledge(comm: MPI.Comm) -> set[int]:
    """Acknowledges the deaths in `comm`, so that receives from any source work again.

    Returns:
        All ranks of `comm` that are known to have died.
    """
    if not is_protected():
        return set()
    comm.Ack_failed()  # first: a rank that dies in between is reported twice rather than never
    failed = comm.Get_failed()
    return set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), comm.group)) if failed.size else set()


def is_protected() -> bool:
    """Whether the job survives lost ranks: Open MPI 5 started with ``--with-ft ulfm``."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112 - Open MPI spells it so


def unreliable_version(library: str) -> str:
    """The version of Open MPI, if a program may hang in it after the loss of a rank; otherwise empty.

    Args:
        library: The name of the MPI library, as ``MPI_Get_library_version`` returns it.
    """
    found = re.match(r"Open MPI v(\d+)\.(\d+)\.(\d+)", library)
    return ".".join(found.groups()) if found and tuple(map(int, found.groups())) < FIRST_RELIABLE else ""


def is_communication_error(error: BaseException) -> bool:
    """Whether `error` reports a broken communicator."""
    return isinstance(error, FAILURES)


def is_consequence(error: BaseException) -> bool:
    """Whether `error` of this rank is only the consequence of the death or the exception of another rank.

    Such errors have one of `ERROR_CLASSES`, or were raised while user code handled one. Every other error of MPI, such
    as a message that is too long for its receiver, is a cause.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, RankLost):
            return True
        if isinstance(found, MPI.Exception) and found.Get_error_class() in ERROR_CLASSES:
            return True
        waiting += [found.__cause__, found.__context__]
    return False


def revoke_if_protected(comm: MPI.Comm) -> None:
    """Revokes `comm` and communicators derived from it, so that calls of ranks that wait for this one raise.

    Has no effect without protection (`is_protected`).
    """
    if comm.size > 1 and is_protected():
        comm.Revoke()


FIRST_PAUSE_S = 10e-6
LONGEST_PAUSE_S = 0.1
SLEEP_FRACTION = 0.05
"""A waiting rank sleeps for this fraction of the time waited so far, so its answer is at most 5 % late."""

UNTESTED = 64
"""An outbox collects at least this many further requests before it tests which of them have ended."""

_UNDER_WAY: list[MPI.Request] = []
"""Requests, and with them their messages, that MPI may still read although the sender no longer waits for them."""


class Pause:
    """Sleeps between two probes, for a fixed fraction of the time waited so far, between 10 µs and `longest_s`.

    Args:
        longest_s: The longest single sleep, in seconds. An answer may be late by this time.
        yield_s: Time in seconds during which it yields the processor without sleeping.
    """

    def __init__(self, longest_s: float = LONGEST_PAUSE_S, yield_s: float = 0.0) -> None:
        self.longest_s, self.yield_s = longest_s, yield_s
        self.reset()

    def reset(self) -> None:
        """Restarts with short sleeps, for example after a message has arrived."""
        self._since = time.monotonic()

    @property
    def waited_s(self) -> float:
        """Seconds since the last `reset`, or since the creation."""
        return time.monotonic() - self._since

    def __call__(self) -> None:
        """Sleeps once; during the first `yield_s` it yields the processor instead."""
        waited_s = self.waited_s
        if waited_s < self.yield_s:
            os.sched_yield()
            return
        time.sleep(min(max(FIRST_PAUSE_S, SLEEP_FRACTION * waited_s), self.longest_s))


def receive(
    comm: MPI.Comm,
    source: int = MPI.ANY_SOURCE,
    tag: int = MPI.ANY_TAG,
    *,
    meanwhile: Callable[[], None] | None = None,
) -> tuple[Any, int, int]:
    """Waits for a message without busy waiting.

    Args:
        meanwhile: Called between two probes, for callers that monitor something else; it may raise.

    Returns:
        The object, the rank that sent it, its tag.
    """
    pause = Pause()
    while (found := poll(comm, source, tag)) is None:
        if meanwhile is not None:
            meanwhile()
        pause()
    return found


def poll(comm: MPI.Comm, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> tuple[Any, int, int] | None:
    """A message that has arrived, as (object, source, tag), or None. Never waits.

    Raises:
        RankLost: `source` has died; with any source, a rank has died and its death is not yet acknowledged.
    """
    status = MPI.Status()
    try:
        message = comm.improbe(source=source, tag=tag, status=status)
        if message is None:
            return None
        return message.recv(), status.Get_source(), status.Get_tag()
    except MPI.Exception as error:
        if error.Get_error_class() in ERROR_CLASSES:
            raise RankLost(str(error)) from None
        raise


def send(comm: MPI.Comm, message: Any, dest: int, tag: int, *, meanwhile: Callable[[], None]) -> None:
    """Sends a message and waits, without busy waiting, until MPI no longer needs it.

    Args:
        meanwhile: As in `receive`. If it raises, the message may still arrive.
    """
    request = comm.isend(message, dest=dest, tag=tag)
    _keep([request])  # `meanwhile` may raise while MPI still reads the message
    pause = Pause()
    while not request.test()[0]:
        meanwhile()
        pause()


class Outbox:
    """Sends messages without waiting for their receivers.

    A blocking send of more than about 200 bytes waits until the receiver next calls MPI, which may be sleeping.
    Messages to ranks that have died are dropped.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._pending: list[MPI.Request] = []  # a request owns the message until it has been sent
        self._most_pending = UNTESTED

    def send(self, message: Any, to: int, tag: int) -> None:
        """Starts to send to a rank."""
        if len(self._pending) > self._most_pending:  # rarely, because each test polls the messages of all ranks
            self._pending = [request for request in self._pending if not _has_ended(request)]
            self._most_pending = 2 * len(self._pending) + UNTESTED
        with suppress(MPI.Exception):
            self._pending.append(self._comm.isend(message, dest=to, tag=tag))


def _has_ended(request: MPI.Request) -> bool:
    """Whether the message has been sent, or never will be because the receiver has died."""
    try:
        return bool(request.test()[0])
    except MPI.Exception:
        return True


def send_to_all(comm: MPI.Comm, message: Any, ranks: Sequence[int], tag: int) -> None:
    """Sends to several ranks at once; ranks that have died are ignored."""
    requests = []
    for rank in ranks:
        with suppress(MPI.Exception):
            requests.append(comm.isend(message, dest=rank, tag=tag))
    for request in requests:
        with suppress(MPI.Exception):
            request.wait()


def deliver(comm: MPI.Comm, message: Any, ranks: Sequence[int], tag: int, limit_s: float) -> None:
    """Sends to several ranks; returns when each has received the message or has died, or after `limit_s`."""
    requests = {}
    for rank in ranks:
        with suppress(MPI.Exception):
            # synchronous: it has ended when the receiver has begun to receive, and not when MPI has copied the message
            requests[rank] = comm.issend(message, dest=rank, tag=tag)
    _keep(requests.values())
    pause = Pause()
    while requests and pause.waited_s < limit_s:
        for rank, request in list(requests.items()):
            if _has_ended(request):
                del requests[rank]
        for rank in acknowledge(comm):  # the send to a dead rank may never end
            requests.pop(rank, None)
        pause()
    _keep(())


def _keep(requests: Iterable[MPI.Request]) -> None:
    """Keeps further requests until they have ended, and drops those that have."""
    _UNDER_WAY[:] = [request for request in _UNDER_WAY if not _has_ended(request)] + list(requests)


def await_deaths(comm: MPI.Comm, ranks: Iterable[int], limit_s: float) -> None:
    """Returns when all of `ranks` are known to have died, or after `limit_s`."""
    pause, waiting = Pause(), set(ranks)
    while waiting and pause.waited_s < limit_s:
        pause()
        waiting -= acknowledge(comm)


def broadcast_sleeping(comm: MPI.Comm, message: Any) -> Any:
    """Rank 0's `message`, on every rank. The other ranks sleep until rank 0 sends it. Collective over `comm`."""
    if comm.rank != 0:
        return receive(comm, source=0)[0]
    send_to_all(comm, message, range(1, comm.size), tag=0)
    return message


def await_all(comm: MPI.Comm) -> None:
    """Returns when all ranks have called it. They sleep meanwhile. Collective over `comm`, with no other message."""
    if comm.rank != 0:
        send_to_all(comm, None, [0], tag=0)
    else:
        for rank in range(1, comm.size):
            receive(comm, source=rank)
    broadcast_sleeping(comm, None)
