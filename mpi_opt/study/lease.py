"""The lease of a study: the right to run it, which one search has at a time.

The search that has it enters a sign of life every few seconds, from a thread with a connection of its own: a strategy
or, in a search of one process, a trial may keep the main thread busy for hours. A search that wants the study looks
whether the owner still exists. On the same machine it asks the system for the owner's process. Elsewhere it watches, by
its own clock, whether the sign of life changes: clocks of different hosts are never compared.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mpi_opt.store.errors import StoreError, StoreNotReadyError, StudyOwnedError
from mpi_opt.store.leases import Leases
from mpi_opt.store.records import LeaseRecord, now

if TYPE_CHECKING:
    from mpi_opt.store import Store
    from mpi_opt.store.records import StudyRecord

RENEW_S = 3.0
"""How often the owner enters a sign of life, in seconds."""

RETRY_S = 1.0
"""How soon it tries again when the store was full or locked, and how long it waits for a lock, in seconds."""

GONE_S = 15.0
"""An owner on another machine whose sign of life has not changed for this long is gone, in seconds."""

POLL_S = 0.5
"""How often a search that waits looks at the lease, in seconds."""

SLOW_S = 1.0
"""A look that takes longer proves nothing: what kept it from the store may have kept the owner, too; in seconds."""

_OWN_TOKENS: set[str] = set()
"""The leases that this process has now."""


class Lease:
    """The lease of a study, renewed by a thread until it is released.

    Args:
        store: Where the study is. In memory no other process can have it: then nothing is renewed.
        study: The study.
        record: What is entered as the owner.
    """

    def __init__(self, store: Store, study: StudyRecord, record: LeaseRecord) -> None:
        self.record = record
        self._store, self._study = store, study
        self._renewed_s = self._verified_s = time.monotonic()
        self._is_lost = False
        self._is_released = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_released, name=f"lease of {study.name}", daemon=True)
        _OWN_TOKENS.add(record.token)
        if store.is_shared:
            self._thread.start()

    def check(self) -> None:
        """Verifies that no other search has taken the study over; to be called before something is written.

        It can be taken over when this process was stopped for longer than `GONE_S`. The store is read only if the
        thread has not renewed the lease for that long.

        Raises:
            StudyOwnedError: Another search has taken it over.
        """
        now_s = time.monotonic()
        if self._thread.is_alive() and min(now_s - self._renewed_s - GONE_S, now_s - self._verified_s - RETRY_S) > 0:
            self._verified_s = now_s
            with suppress(StoreNotReadyError):
                owner = self._store.leases.read(self._study.id)
                self._is_lost = owner is None or owner.token != self.record.token
        if self._is_lost:
            owner = self._store.leases.read(self._study.id)
            raise StudyOwnedError(
                f"another search has taken the study over{'' if owner is None else f': {described(owner)}'}",
                where=_place(self._store, self._study),
                cure=f"this search gave no sign of life for {GONE_S:g} s; the same command continues the study",
            )

    def release(self) -> None:
        """Gives the study up. Does not wait long for a locked store: then the lease stays, without an owner."""
        self._is_released.set()
        if self._thread.is_alive():
            self._thread.join(2 * RETRY_S)
        _OWN_TOKENS.discard(self.record.token)

    def _renew_until_released(self) -> None:
        leases: Leases | None = None
        while not self._is_released.wait(RENEW_S if leases is not None else RETRY_S):
            leases = self._renewed(leases)
        with suppress(StoreError):
            leases = leases or self._connected()
            leases.release(self._study.id, self.record.token)
        if leases is not None:
            leases.close()

    def _renewed(self, leases: Leases | None) -> Leases | None:
        """Enters a sign of life; returns the connection if it can be used again."""
        try:
            leases = leases or self._connected()
            if leases.renew(self._study.id, self.record.token, now()):
                self._renewed_s = time.monotonic()
            else:
                self._is_lost = True
        except Exception:  # noqa: BLE001 - whatever it is, such as a full disk, the next try may succeed
            if leases is not None:
                with suppress(Exception):
                    leases.close()
            return None
        return leases

    def _connected(self) -> Leases:
        return Leases.open(self._store.address, RETRY_S)


class Watch:
    """Tells, by watching, whether the owner of a lease still exists."""

    def __init__(self) -> None:
        self._seen: tuple[str, str] | None = None
        self._has_changed = False
        self._since_s = self._polled_s = 0.0

    def poll(self) -> None:
        """To be called before each look at the lease."""
        self._polled_s = time.monotonic()

    def restart(self) -> None:
        """Forgets how long the sign of life has not changed."""
        self._since_s = time.monotonic()

    def is_gone(self, owner: LeaseRecord) -> bool:
        """Whether the owner no longer exists, as far as it is known by now."""
        if owner.machine == machine():
            return not _is_running(owner)
        seen, now_s = (owner.token, owner.renewed_at), time.monotonic()
        if seen != self._seen:
            self._has_changed = self._seen is not None and self._seen[0] == owner.token
            self._seen, self._since_s = seen, now_s
        elif now_s - self._polled_s > SLOW_S:
            self.restart()
        return now_s - self._since_s >= GONE_S

    def is_alive(self, owner: LeaseRecord) -> bool:
        """Whether the owner, which is not gone, is known to exist."""
        return owner.machine == machine() or self._has_changed


@contextmanager
def leased(
    store: Store,
    study: StudyRecord,
    *,
    wait: bool = False,
    note: Callable[[str], None] = lambda text: None,
    is_ending: Callable[[], bool] = lambda: False,
) -> Iterator[Lease | None]:
    """The lease of a study for the time of the block.

    Args:
        store: Open for writing.
        study: The study.
        wait: Wait as long as another search runs the study.
        note: Receives one line that says what is waited for.
        is_ending: Whether the user wants this search to end; it then stops waiting.

    Yields:
        The lease; None if the search is to end before it got it.

    Raises:
        StudyOwnedError: Another search runs the study; names its process, host and time.
        StoreError: The store cannot be written.
    """
    mine = _new_record()
    if not _taken(store, study, mine, wait, note, is_ending):
        yield None
        return
    lease = Lease(store, study, mine)
    try:
        yield lease
    finally:
        lease.release()


def described(owner: LeaseRecord) -> str:
    """The owner of a lease in words: process, host and time."""
    return f"process {owner.process} on {owner.host}, since {owner.since[:19].replace('T', ' ')} UTC"


def _taken(
    store: Store,
    study: StudyRecord,
    mine: LeaseRecord,
    wait: bool,
    note: Callable[[str], None],
    is_ending: Callable[[], bool],
) -> bool:
    watch, is_noted = Watch(), False
    while not is_ending():
        watch.poll()
        owner = _look(store, study, mine, watch, wait)
        if owner is mine:
            return True
        if owner is not None and not wait and watch.is_alive(owner):
            raise StudyOwnedError(
                f"another search runs this study: {described(owner)}",
                where=_place(store, study),
                cure="wait for its end with --wait, or end it; another study needs another --study NAME",
            )
        if owner is not None and not is_noted:
            is_noted = True
            note(_waiting_for(owner, watch))
        time.sleep(POLL_S)
    return False


def _look(store: Store, study: StudyRecord, mine: LeaseRecord, watch: Watch, wait: bool) -> LeaseRecord | None:
    """Takes the lease if it is free; returns its owner, None if the store cannot be written for the moment."""
    try:
        return store.leases.take(study.id, mine, watch.is_gone)
    except StoreNotReadyError:
        if not wait:
            raise
        watch.restart()
        return None


def _waiting_for(owner: LeaseRecord, watch: Watch) -> str:
    if watch.is_alive(owner):
        return f"waiting for the search that runs this study: {described(owner)}"
    return f"looking for up to {GONE_S:g} s whether the search that had this study is alive: {described(owner)}"


def _new_record() -> LeaseRecord:
    at, process = now(), os.getpid()
    return LeaseRecord(
        token=secrets.token_hex(16),
        host=socket.gethostname(),
        machine=machine(),
        process=process,
        process_began=_began(process),
        since=at,
        renewed_at=at,
    )


def _place(store: Store, study: StudyRecord) -> str:
    return f"study {study.name} in {store.url}"


def machine() -> str:
    """Names the host, the start of its kernel and the process namespace: where these agree, so do process ids."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _is_running(owner: LeaseRecord) -> bool:
    """Whether the owner's process, on this machine, exists and still has the lease."""
    if owner.process == os.getpid():
        return owner.token in _OWN_TOKENS
    began = _began(owner.process)
    if began is not None:
        return began == owner.process_began  # otherwise another process has got the same number since
    try:
        os.kill(owner.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process, which /proc may hide
        return True
    return owner.process_began is None  # no /proc; otherwise it has ended, and its parent has not noticed yet


def _began(process: int) -> int | None:
    """When a process of this machine began, in clock ticks since the machine's start; None if /proc does not tell."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return None if state in "ZX" else int(fields[18])
