"""Memory that the ranks of a host share."""

from __future__ import annotations

import os
import socket
import sys
import threading
import types
import uuid

import pytest

from mpi_learn.mpi import host_memory


def test_a_process_of_a_user_with_a_large_number_is_recognised(monkeypatch):
    """User ids are 32 bits without a sign; directories of a laboratory may assign those from 2^31 on."""
    user, credentials = 3_000_000_000, b""
    for number in (4711, user, 100):
        credentials += number.to_bytes(4, sys.byteorder)
    other = types.SimpleNamespace(getsockopt=lambda level, option, length: credentials[:length])
    monkeypatch.setattr(os, "getuid", lambda: user)
    assert host_memory._is_own_user(other)
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert not host_memory._is_own_user(other)


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
