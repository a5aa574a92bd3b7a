"""The lease of a study: the right to run it, which one search owns at a time.

The owner renews the lease every few seconds from a thread with a separate connection, because a strategy or, in a
search of one process, a trial may keep the main thread busy for hours. A search that requests the lease checks whether
the owner still exists: on the same machine by the process id, otherwise by whether the time of renewal changes within
`GONE_S` of its own clock. Clocks of different hosts are never compared.
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

from mpi_opt.errors import StoreError
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreMovedError, StoreNotReadyError, StudyOwnedError
from mpi_opt.store.leases import Leases
from mpi_opt.store.records import LeaseRecord, StudyRecord, now, readable

RENEW_S = 3.0
"""The interval at which the owner renews the lease, in seconds."""

RETRY_S = 1.0
"""The pause after a failed renewal, and the time limit for a locked SQLite file, in seconds."""

GONE_S = 15.0
"""Time without a renewal, in seconds, after which an owner on another machine is assumed not to exist any more."""

POLL_S = 0.5
"""The interval at which a waiting search reads the lease, in seconds."""

SLOW_S = 1.0
"""A read that takes longer, in seconds, restarts the count of `GONE_S`: the owner may have been delayed as well."""

_OWN_TOKENS: set[str] = set()
"""The leases that this process owns."""


class Lease:
    """The lease of a study, renewed by a thread until it is released.

    A lease in memory is not renewed: no other process can open the store.

    Args:
        record: The owner, this search.
        died_at: The last renewal of the owner before, which did not release the lease; None if there was none.
    """

    def __init__(self, store: Store, study: StudyRecord, record: LeaseRecord, died_at: str | None = None) -> None:
        self.record, self.died_at = record, died_at
        self._store, self._study = store, study
        # the thread assigns these, one at a time, and reads none of them: no lock is needed
        self._renewed_s = self._verified_s = _times_s()
        self._is_lost = False
        self._error: StoreMovedError | None = None
        self._is_released = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_released, name=f"lease of {study.name}", daemon=True)
        _OWN_TOKENS.add(record.token)
        if store.is_shared:
            self._thread.start()

    def check(self) -> None:
        """Verifies that this search still owns the study.

        Each writing transaction of the store verifies it as well, see `leased`.

        Another search can take the study over after this process was stopped, or this machine suspended, for longer
        than `GONE_S`. The store is read only if the thread has not renewed the lease for that long.

        Raises:
            StudyOwnedError: Another search has taken it over.
            StoreMovedError: The file of the store was deleted or replaced.
        """
        self.verify(lambda: self._store.leases.read(self._study.id))

    def verify(self, read: Callable[[], LeaseRecord | None]) -> None:
        """Does the same as `check`; `read` returns the present owner of the study."""
        if self._error is not None:
            raise self._error
        now_s = _times_s()
        if (
            _since(self._renewed_s, now_s) > GONE_S
            and _since(self._verified_s, now_s) > RETRY_S
            and self._thread.is_alive()
        ):
            with suppress(StoreNotReadyError):  # such as a store that is locked, also by a new owner: read again
                owner = read()
                self._is_lost, self._verified_s = owner is None or owner.token != self.record.token, now_s
        if self._is_lost:
            owner = read()
            problem = "the lease of this search was removed from the store, by another search or another program"
            if owner is not None and owner.token != self.record.token:
                problem = "another search has taken the study over, because this one did not renew its lease for "
                problem += f"{GONE_S:g} s: {owner_as_text(owner)}"
            raise StudyOwnedError(
                problem,
                where=_study_in_store(self._store, self._study),
                cure="wait until that search has ended, or add --wait; the same command then continues the study",
            )

    def release(self) -> None:
        """Releases the lease.

        If the store stays locked, the row remains. It excludes other processes of this machine until this process ends,
        and those of other machines for `GONE_S`.
        """
        self._is_released.set()
        if self._thread.is_alive():
            self._thread.join(2 * RETRY_S)
        _OWN_TOKENS.discard(self.record.token)

    def _renew_until_released(self) -> None:
        leases: Leases | None = None
        while not self._is_released.wait(RENEW_S if leases is not None else RETRY_S):
            leases = self._renew(leases)
        with suppress(StoreError):
            self._store.check_in_place()
            leases = leases or self._connect()
            leases.release(self._study.id, self.record.token)
        if leases is not None:
            leases.close()

    def _renew(self, leases: Leases | None) -> Leases | None:
        """Renews the lease; returns the connection, or None if it cannot be used again."""
        try:
            self._store.check_in_place()  # a new connection would create an empty store in its place
            leases = leases or self._connect()
            if leases.renew(self._study.id, self.record.token, now()):
                self._renewed_s = _times_s()
            else:
                self._is_lost = True
        except StoreMovedError as error:
            self._error = error
            return leases
        except Exception:  # noqa: BLE001 - the next attempt may succeed after any error, such as a full disk
            if leases is not None:
                with suppress(Exception):
                    leases.close()
            return None
        return leases

    def _connect(self) -> Leases:
        return Leases.open(self._store.address, RETRY_S)


class OwnerWatch:
    """Decides whether the owner of a lease still exists, from repeated reads of the lease."""

    def __init__(self) -> None:
        self._seen: tuple[str, str] | None = None
        self._has_changed = False
        self._since_s = self._read_at_s = 0.0
        self.died_at: str | None = None  # the last renewal of an owner that does not exist any more

    def begin_read(self) -> None:
        """Records the time; to be called before each read of the lease."""
        self._read_at_s = time.monotonic()

    def restart(self) -> None:
        """Starts to count again how long the lease has not been renewed."""
        self._since_s = time.monotonic()

    def is_gone(self, owner: LeaseRecord) -> bool:
        """Whether the owner is known not to exist any more."""
        if is_gone := self._is_gone(owner):
            self.died_at = owner.renewed_at
        return is_gone

    def _is_gone(self, owner: LeaseRecord) -> bool:
        if owner.machine == machine():
            return not _is_running(owner)
        seen, now_s = (owner.token, owner.renewed_at), time.monotonic()
        if seen != self._seen:
            self._has_changed = self._seen is not None and self._seen[0] == owner.token
            self._seen, self._since_s = seen, now_s
        elif now_s - self._read_at_s > SLOW_S:
            self.restart()
        return now_s - self._since_s >= GONE_S

    def is_alive(self, owner: LeaseRecord) -> bool:
        """Whether the owner is known to exist; called if `is_gone` is False."""
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
    """Owns the lease of a study while the block of the ``with`` statement runs.

    During the block, each transaction that writes to `store` fails if another search has taken the study over: this
    process may have been stopped at any instruction for longer than `GONE_S`.

    Args:
        store: Open for writing.
        study: The study in the store.
        wait: Whether to wait while another search runs the study.
        note: Receives one line with the reason for waiting.
        is_ending: Whether this search must end; it then stops waiting.

    Yields:
        The lease; None if the search must end before it owns the lease.

    Raises:
        StudyOwnedError: Another search runs the study; the message names its process, host and time.
        StoreError: The store cannot be written.
    """
    mine, watch = _new_record(), OwnerWatch()
    if not _acquire(store, study, mine, watch, wait, note, is_ending):
        yield None
        return
    lease = Lease(store, study, mine, watch.died_at)
    try:
        with store.leases.verified(study.id, lease.verify):
            yield lease
    finally:
        lease.release()


def owner_as_text(owner: LeaseRecord) -> str:
    """The process, host and time of the owner of a lease, as text."""
    return f"process {owner.process} on {owner.host}, since {readable(owner.since)} UTC"


def _acquire(
    store: Store,
    study: StudyRecord,
    mine: LeaseRecord,
    watch: OwnerWatch,
    wait: bool,
    note: Callable[[str], None],
    is_ending: Callable[[], bool],
) -> bool:
    """Takes the lease as soon as it is free; returns False if this search must end before that."""
    noted = ""
    while not is_ending():
        watch.begin_read()
        try:
            owner = store.leases.acquire(study.id, mine, watch.is_gone)
        except StoreNotReadyError:  # the store is locked, or its disk is full
            if not wait:
                raise
            watch.restart()
            time.sleep(POLL_S)
            continue
        if owner is mine:
            return True
        is_alive = watch.is_alive(owner)
        if is_alive and not wait:
            raise StudyOwnedError(
                f"another search runs this study: {owner_as_text(owner)}",
                where=_study_in_store(store, study),
                cure="wait for its end with --wait, or end it; for a new study add --study NAME",
            )
        what = "waiting for the search that runs this study"
        if not is_alive:
            what = f"checking for up to {GONE_S:g} s whether the previous search is still running"
        if what != noted:
            noted = what
            note(f"{what}: {owner_as_text(owner)}")
        time.sleep(POLL_S)
    return False


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


def _study_in_store(store: Store, study: StudyRecord) -> str:
    return f"study {study.name} in {store.url}"


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _times_s() -> tuple[float, float]:
    """The time by clocks of this machine that continue while it is suspended, in seconds; for differences only.

    `time.monotonic` stops meanwhile on Linux. The clock since the start of the machine also stops if the machine is a
    virtual one that is suspended from outside; the clock of the day is then set forward.
    """
    return time.time(), time.clock_gettime(_BOOT_CLOCK)


def _since(before_s: tuple[float, float], now_s: tuple[float, float]) -> float:
    """Seconds between two values of `_times_s`, by the clock that has advanced more."""
    return max(now_s[0] - before_s[0], now_s[1] - before_s[1])


def machine() -> str:
    """Identifies the host, the start of its kernel and the process namespace, in which process ids are unique."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _is_running(owner: LeaseRecord) -> bool:
    """Whether the process of an owner on this machine exists and still owns the lease."""
    if owner.process == os.getpid():
        return owner.token in _OWN_TOKENS
    began = _began(owner.process)
    if began is not None:
        return began == owner.process_began  # otherwise another process has the same number now
    try:
        os.kill(owner.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process of another user, which /proc may hide
        return True
    return owner.process_began is None  # no /proc; otherwise the process is a zombie


def _began(process: int) -> int | None:
    """The start of a process, in clock ticks since the start of the machine; None if it has ended or without /proc."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()  # the name, in parentheses, may contain any character
    return None if state in "ZX" else int(fields[18])
