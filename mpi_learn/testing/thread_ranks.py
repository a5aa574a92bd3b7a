"""Ranks as threads of one process: a communicator in memory with a given order of messages, without mpirun.

Unlike MPI, it raises an error if the ranks of a collective call different operations or if a rank is missing, instead
of hanging or returning wrong numbers.
"""

# ruff: noqa: N802 - the names are those of MPI
from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import numpy as np

from mpi_learn.mpi.library import MPI

Result = TypeVar("Result")

PATIENCE_S = 10
"""The longest wait for another rank, in seconds."""


class CollectiveMismatch(AssertionError):
    """The ranks call different collectives, or one of them does not come."""


class _Shared:
    """The state that the ranks of one communicator share."""

    def __init__(self, size: int, family: list[_Shared] | None = None) -> None:
        self.size = size
        self.family: list[_Shared] = [] if family is None else family
        self.family.append(self)
        self.n_freed = 0
        self.barrier = threading.Barrier(size, timeout=PATIENCE_S)
        self.slots: list[tuple[Hashable, Any]] = [(None, None)] * size
        self.mail: list[deque[Any]] = [deque() for _ in range(size)]
        self.parts: dict[int, _Shared] = {}
        self.lock = threading.Lock()

    def abort(self) -> None:
        for one in self.family:
            one.barrier.abort()


class _Done:
    def Test(self) -> bool:
        return True


class _Receiving:
    def __init__(self, comm: ThreadComm, buffer: np.ndarray, source: int, tag: int) -> None:
        self.comm, self.buffer, self.source, self.tag, self.is_done = comm, buffer, source, tag, False

    def Test(self) -> bool:
        with self.comm._shared.lock:  # the threads share the list of exchanges, and each may test all of them
            if not self.is_done:
                found = self.comm._taken(self.source, self.tag)
                if found is not None:
                    self.buffer[:] = np.frombuffer(found[2], self.buffer.dtype)
                    self.is_done = True
            return self.is_done


class _Message:
    def __init__(self, content: Any) -> None:
        self.content = content

    def Recv(self, buffer: np.ndarray) -> None:
        buffer[:] = np.frombuffer(self.content, buffer.dtype)

    def recv(self) -> Any:
        return self.content


class ThreadComm:
    """The part of `MPI.Comm` that MPI Learn uses.

    Attributes:
        after_send: Called with the tag of each message of this rank when it has arrived.
    """

    def __init__(self, shared: _Shared, rank: int) -> None:
        self._shared, self.rank, self.size = shared, rank, shared.size
        self.after_send: Callable[[int], None] = lambda tag: None

    # collectives

    def _all(self, operation: Hashable, value: Any) -> list[Any]:
        """Every rank's value, in the order of ranks; all ranks must call the same operation."""
        shared = self._shared
        try:
            shared.slots[self.rank] = (operation, value)
            shared.barrier.wait()
            found = list(shared.slots)
            shared.barrier.wait()
        except threading.BrokenBarrierError:
            raise CollectiveMismatch(f"rank {self.rank} waits in {operation} for others that do not come") from None
        operations = {one for one, _ in found}
        if len(operations) > 1:
            raise CollectiveMismatch(f"the ranks call different collectives: {operations}")
        return [one for _, one in found]

    def Allreduce(self, _: Any, vector: np.ndarray) -> None:
        vector[:] = functools.reduce(np.add, self._all(("Allreduce", vector.size, vector.dtype), vector.copy()))

    def Bcast(self, vector: np.ndarray, root: int = 0) -> None:
        vector[:] = self._all(("Bcast", vector.size, vector.dtype, root), vector.copy())[root]

    def Allgather(self, vector: np.ndarray, found: np.ndarray) -> None:
        found[:] = self._all(("Allgather", vector.size, vector.dtype), vector.copy())

    def Alltoall(self, vector: np.ndarray, found: np.ndarray) -> None:
        parts = self._all(("Alltoall", vector.size, vector.dtype), vector.copy())
        found[:] = np.concatenate([np.split(part, self.size)[self.rank] for part in parts])

    def allgather(self, value: Any) -> list[Any]:
        return self._all("allgather", value)

    def gather(self, value: Any, root: int = 0) -> list[Any] | None:
        found = self._all(("gather", root), value)
        return found if self.rank == root else None

    def bcast(self, value: Any = None, root: int = 0) -> Any:
        return self._all(("bcast", root), value)[root]

    def allreduce(self, value: Any, op: Any = None) -> Any:
        return functools.reduce(op or MPI.SUM, self._all("allreduce", value))

    def Barrier(self) -> None:
        self._all("Barrier", None)

    def Split(self, color: int, key: int = 0) -> ThreadComm | None:
        colors = self._all("Split", color)
        ranks = [rank for rank, one in enumerate(colors) if one == color]
        part = None
        with self._shared.lock:
            if color != MPI.UNDEFINED:
                if color not in self._shared.parts:
                    self._shared.parts[color] = _Shared(len(ranks), self._shared.family)
                part = ThreadComm(self._shared.parts[color], ranks.index(self.rank))
        self.Barrier()
        self._shared.parts.clear()
        return part

    def Split_type(self, _: int) -> ThreadComm | None:
        """As if every rank were on a host of its own."""
        return self.Split(self.rank)

    def Dup(self) -> ThreadComm | None:
        return self.Split(0)

    def Free(self) -> None:
        with self._shared.lock:
            self._shared.n_freed += 1
        self.Barrier()

    def unfreed(self) -> list[int]:
        """Sizes of the communicators that were made of this one, directly or not, and that not all ranks have freed."""
        return [one.size for one in self._shared.family[1:] if one.n_freed < one.size]

    def unreceived(self) -> list[int]:
        """Tags of the messages over this communicator, and over all that were made of it, that no rank has received."""
        return [tag for one in self._shared.family for box in one.mail for _, tag, _ in box]

    def Set_errhandler(self, handler: Any) -> None:
        """Nothing: errors are exceptions."""

    # messages

    def Isend(self, buffer: np.ndarray, dest: int, tag: int = 0) -> _Done:
        self._shared.mail[dest].append((self.rank, tag, buffer.tobytes()))
        self.after_send(tag)
        return _Done()

    def Irecv(self, buffer: np.ndarray, source: int, tag: int) -> _Receiving:
        return _Receiving(self, buffer, source, tag)

    def Improbe(self, source: int | None = None, tag: int | None = None, status: Any = None) -> _Message | None:
        if (found := self._taken(source, tag)) is None:
            return None
        status.Set_source(found[0])
        status.Set_tag(found[1])
        if isinstance(found[2], bytes):
            status.Set_elements(MPI.BYTE, len(found[2]))
        return _Message(found[2])

    improbe = Improbe

    def Iprobe(self, source: int | None = None, tag: int | None = None) -> bool:
        return any(self._matches(one, source, tag) for one in list(self._shared.mail[self.rank]))

    def send(self, value: Any, dest: int, tag: int = 0) -> None:
        self._shared.mail[dest].append((self.rank, tag, value))

    def isend(self, value: Any, dest: int, tag: int = 0) -> Any:
        self.send(value, dest, tag)
        return MPI.REQUEST_NULL

    def recv(self, source: int | None = None, tag: int | None = None) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while (found := self._taken(source, tag)) is None:
            assert time.monotonic() < deadline, f"rank {self.rank} waits for a message that does not come"
            time.sleep(0)
        return found[2]

    def _taken(self, source: int | None, tag: int | None) -> Any:
        if self._shared.barrier.broken:
            raise CollectiveMismatch("another rank has failed")
        box = self._shared.mail[self.rank]
        for one in list(box):
            if self._matches(one, source, tag):
                box.remove(one)
                return one
        return None

    @staticmethod
    def _matches(message: tuple[int, int, Any], source: int | None, tag: int | None) -> bool:
        return source in (None, MPI.ANY_SOURCE, message[0]) and tag in (None, MPI.ANY_TAG, message[1])


def run_ranks(n: int, function: Callable[[Any], Result], timeout_s: float = 60) -> list[Result]:
    """Calls ``function(comm)`` on `n` ranks at once and returns their results; raises what one of them raises."""
    shared = _Shared(n)
    results: list[Any] = [None] * n
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = function(ThreadComm(shared, rank))
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)
            shared.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    if errors:
        raise next((one for one in errors if not isinstance(one, CollectiveMismatch)), errors[0])
    assert not any(thread.is_alive() for thread in threads), "a rank did not end"
    return results


class Turns:
    """Lets the ranks act one after the other in a given order.

    Args:
        order: Ranks; each may act once for each time that it is in the list.

    Attributes:
        are_over_by_message: Whether a message ends a turn, because a rank then waits for others.
    """

    def __init__(self, order: Iterable[int]) -> None:
        self.are_over_by_message = False
        self._order, self._next, self._changed = list(order), 0, threading.Condition()

    def wait(self, rank: int) -> None:
        """Waits for a turn of `rank`."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self._next < len(self._order) and self._order[self._next] == rank, PATIENCE_S
            ), f"rank {rank} waits for its turn"

    def end(self) -> None:
        """The turn is over."""
        with self._changed:
            self._next += 1
            self._changed.notify_all()
