"""Memory that the ranks of a host share."""

from __future__ import annotations

import os
import socket
import sys
import threading
import types
import uuid

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn.mpi import host_memory
from mpi_learn.testing.thread_ranks import run_ranks


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


def shared(comm, name, content):
    """The memory as a text, and the texts with which this rank has filled it."""
    filled = []

    def fill(memory):
        memory[:] = np.frombuffer(content.encode(), np.uint8)
        filled.append(content)

    return host_memory.shared_by_host(comm, name, len(content), fill), filled


def test_memory_has_the_content_of_its_first_rank_for_later_ranks_of_the_job():
    name = uuid.uuid4().hex
    first, filled = shared(MPI.COMM_SELF, name, "first")
    second, filled_again = shared(MPI.COMM_SELF, name, "other")
    elsewhere, _ = shared(MPI.COMM_SELF, name + "!", "third")
    assert [memory.tobytes() for memory in (first, second, elsewhere)] == [b"first", b"first", b"third"]
    assert (filled, filled_again) == (["first"], [])
    first[0] = ord("F")
    assert second.tobytes() == b"First", "it is the same memory"


@pytest.mark.parametrize("n_hosts", [1, 2])
def test_one_rank_of_each_host_fills_the_memory_and_no_communicator_is_left(monkeypatch, n_hosts):
    monkeypatch.setattr(host_memory, "on_this_host", lambda comm: comm.Split(comm.rank % n_hosts))
    monkeypatch.setattr(host_memory, "broadcast_sleeping", lambda comm, message: comm.bcast(message))
    worlds, name = [], uuid.uuid4().hex

    def run(comm):
        worlds.append(comm)
        memory, filled = shared(comm, f"{name} {comm.rank % n_hosts}", f"of {comm.rank}")
        comm.Barrier()
        return memory.tobytes().decode(), filled

    assert run_ranks(4, run) == [
        (f"of {rank % n_hosts}", [f"of {rank}"] if rank < n_hosts else []) for rank in range(4)
    ]
    assert worlds[0].unfreed() == []


def test_an_error_while_memory_is_filled_is_raised_on_that_rank_alone(monkeypatch):
    monkeypatch.setattr(host_memory, "on_this_host", lambda comm: comm.Split(0))
    monkeypatch.setattr(host_memory, "broadcast_sleeping", lambda comm, message: comm.bcast(message))
    worlds, name = [], uuid.uuid4().hex

    def fail(memory):
        raise ValueError("no file")

    def run(comm):
        worlds.append(comm)
        try:
            return host_memory.shared_by_host(comm, name, 5, fail).size
        except ValueError as error:
            return str(error)

    assert run_ranks(3, run) == ["no file", 0, 0]
    assert worlds[0].unfreed() == []


def test_without_anonymous_files_each_rank_fills_memory_of_its_own(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    name = uuid.uuid4().hex
    first, second = (shared(MPI.COMM_SELF, name, content)[0].tobytes() for content in ("first", "other"))
    assert (first, second) == (b"first", b"other")


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"PMIX_NAMESPACE": "a", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "2"}, "a"),
        ({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "2"}, "1.2"),
        ({"SLURM_JOB_ID": "1"}, f"of {os.getppid()}"),
        ({}, f"of {os.getppid()}"),
    ],
)
def test_processes_of_one_launcher_have_a_name_in_common(monkeypatch, environment, name):
    for variable in ("PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert host_memory.job_name() == name
