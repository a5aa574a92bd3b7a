"""Memory that the ranks of a host share."""

from __future__ import annotations

import socket
import threading
import uuid

import pytest

from mpi_learn.mpi import host_memory


def test_memory_is_not_shared_if_no_thread_can_be_started(monkeypatch):
    """A limit of threads is an expected error, after which every rank has memory of its own. No socket is left."""

    def start(thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    address = host_memory._address(uuid.uuid4().hex)
    with pytest.raises(OSError, match="can't start new thread"):
        host_memory._acquired(address, 8, lambda memory: None)
    with socket.socket(socket.AF_UNIX) as other, pytest.raises(ConnectionRefusedError):
        other.connect(address)
