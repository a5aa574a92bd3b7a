"""Files behind URLs, from a real web server on this machine."""

from __future__ import annotations

import contextlib
import errno
import functools
import http.server
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files import finding
from mpi_learn.data.files.data_plan import count_samples
from mpi_learn.data.loading import load
from mpi_learn.errors import DataError, UserError
from tests.mpi_learn.killed_writer import killed_while_writing
from tests.mpirun import patient_s, run
from tests.optional_packages import is_installed, needs
from tests.world import in_world

if is_installed("fsspec"):
    import fsspec

pytestmark = needs("fsspec")


class CountingFiles(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and counts whole downloads."""

    downloads: ClassVar[list[str]] = []
    is_ready: ClassVar[Callable[[], bool]] = lambda: True
    """A download waits until this is true, for at most half a minute on a quiet machine."""

    def do_GET(self):
        self.downloads.append(self.path)
        last = time.monotonic() + patient_s(15)
        while not type(self).is_ready() and time.monotonic() < last:
            time.sleep(0.01)
        super().do_GET()

    def log_message(self, *_):
        pass


def n_waiting_for_a_lock_in(folder: Path) -> int:
    """How many processes wait for a lock on a file in this folder, as the kernel lists them."""
    inodes = {str(lock.stat().st_ino) for lock in folder.glob(".*.lock")}
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines() if " -> " in line]
    return sum(words[6].rpartition(":")[2] in inodes for words in waiting)


@contextlib.contextmanager
def served(folder: Path):
    CountingFiles.downloads.clear()
    handler = functools.partial(CountingFiles, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()  # a server that is only closed would loop forever


@pytest.fixture
def remote_folder(tmp_path) -> Path:
    folder = tmp_path / "remote"
    folder.mkdir()
    for i in range(2):
        with h5py.File(folder / f"part_{i}.h5", "w") as file:
            file["X"] = np.full((3, 2), i)
            file["y"] = np.full(3, i)
    return folder


def configured(*places, **others) -> DataConfiguration:
    return DataConfiguration(**{"train": list(places), "features": "X", "labels": "y"} | others)


def loaded(*places, **others):
    return load(configured(*places, **others), MPI.COMM_SELF, seed=0)


def visible(folder: Path) -> list[str]:
    return [path.name.split("-")[-1] for path in folder.iterdir() if not path.name.startswith(".")]


def test_a_glob_of_urls_is_read_in_sorted_order(remote_folder):
    assert loaded(f"file://{remote_folder}/part_*.h5").training.y[0].tolist() == [0, 0, 0, 1, 1, 1]


def test_copies_stay_in_the_cache_and_are_used_again(remote_folder, tmp_path):
    cache = tmp_path / "cache"
    place = f"file://{remote_folder}/part_1.h5"
    loaded(place, cache=str(cache))
    (copy,) = (path for path in cache.iterdir() if not path.name.startswith("."))
    written = copy.stat().st_mtime_ns
    assert loaded(place, cache=str(cache)).training.y[0].tolist() == [1, 1, 1]
    assert copy.stat().st_mtime_ns == written


def test_a_changed_file_is_downloaded_again(remote_folder, tmp_path):
    place, cache = f"file://{remote_folder}/part_1.h5", str(tmp_path / "cache")
    loaded(place, cache=cache)
    with h5py.File(remote_folder / "part_1.h5", "w") as file:
        file["X"], file["y"] = np.zeros((4, 2)), np.full(4, 9)
    assert loaded(place, cache=cache).training.y[0].tolist() == [9] * 4


def test_copies_are_removed_without_keep_cache(remote_folder, tmp_path):
    cache = tmp_path / "cache"
    loaded(f"file://{remote_folder}/part_1.h5", cache=str(cache), keep_cache=False)
    assert list(cache.iterdir()) == []


def test_without_a_cache_nothing_is_left(remote_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(finding.tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    loaded(f"file://{remote_folder}/part_1.h5")
    assert set(tmp_path.iterdir()) == before


def _hold(url: str, cache: Path, keep: bool, sums) -> None:
    with finding.Copies(cache, keep) as copies, h5py.File(copies.path(url)) as file:
        sums.put(int(file["y"][:].sum()))


@pytest.mark.parametrize("keep", [True, False])
def test_processes_that_come_at_once_fetch_one_copy(remote_folder, tmp_path, monkeypatch, keep):
    context = multiprocessing.get_context("fork")
    sums, n_fetched, cache = context.Queue(), context.Value("i", 0), tmp_path / "cache"
    url, fetch = f"file://{remote_folder}/part_1.h5", finding._fetch

    def counted_fetch(*arguments):
        with n_fetched.get_lock():
            n_fetched.value += 1
            is_first = n_fetched.value == 1
        last = time.monotonic() + patient_s(15)
        while is_first and n_waiting_for_a_lock_in(cache) < 3 and time.monotonic() < last:
            time.sleep(0.01)
        fetch(*arguments)

    monkeypatch.setattr(finding, "_fetch", counted_fetch)
    processes = [context.Process(target=_hold, args=(url, cache, keep, sums)) for _ in range(4)]
    for process in processes:
        process.start()
    assert [sums.get(timeout=patient_s(30)) for _ in processes] == [3] * 4
    for process in processes:
        process.join(patient_s(30))
        process.kill()
    assert [process.exitcode for process in processes] == [0] * 4
    assert n_fetched.value == 1
    assert visible(cache) == (["part_1.h5"] if keep else [])


def test_a_copy_is_not_removed_while_another_reads_it(remote_folder, tmp_path):
    cache, url = tmp_path / "cache", f"file://{remote_folder}/part_1.h5"
    with finding.Copies(cache, False) as first:
        path = first.path(url)
        with finding.Copies(cache, False) as second:
            assert second.path(url) == path
        assert path.exists()
    assert not path.exists()


def test_a_waiting_reader_that_is_scheduled_late_does_not_fetch_the_copy_again(remote_folder, tmp_path, monkeypatch):
    """The only other reader leaves before the operating system wakes the waiting one."""
    cache, url = tmp_path / "cache", f"file://{remote_folder}/part_1.h5"
    waits, may_go_on, fetched = threading.Event(), threading.Event(), []
    flock, fetch = finding.fcntl.flock, finding._fetch
    late = threading.Thread(target=lambda: found.append(_read(url, cache)), name="late")
    found: list[int] = []

    def late_flock(lock, kind):
        while threading.current_thread() is late:
            try:
                return flock(lock, kind | finding.fcntl.LOCK_NB)
            except BlockingIOError:
                waits.set()
                assert may_go_on.wait(patient_s(15))
        return flock(lock, kind)

    def slow_fetch(*arguments):
        fetched.append(url)
        if len(fetched) == 1:
            late.start()
            assert waits.wait(patient_s(15))
        fetch(*arguments)

    monkeypatch.setattr(finding.fcntl, "flock", late_flock)
    monkeypatch.setattr(finding, "_fetch", slow_fetch)
    assert _read(url, cache) == 3
    may_go_on.set()
    late.join(patient_s(15))
    assert (found, len(fetched)) == ([3], 1)
    assert list(cache.iterdir()) == []


def _read(url: str, cache: Path) -> int:
    with finding.Copies(cache, keep=False) as copies, h5py.File(copies.path(url)) as file:
        return int(file["y"][:].sum())


FORKING = """
import os, signal, sys, time
from pathlib import Path
from mpi_learn.data.files.finding import Copies
url, cache = sys.argv[1], Path("cache")
with Copies(cache, keep=True) as copies:
    copy = copies.path(url)
    if (child := os.fork()) == 0:
        time.sleep(60)
    if (brief := os.fork()) == 0:
        sys.exit()  # through the context, where the parent's copy stays
    os.waitpid(brief, 0)
    assert copy.exists()
copy.unlink()  # somebody made room
with Copies(cache, keep=False) as copies:
    print(copies.path(url).read_text(), flush=True)
os.kill(child, signal.SIGKILL)
"""


def test_a_process_that_user_code_forked_does_not_hold_the_locks(tmp_path):
    (tmp_path / "source.csv").write_text("1")
    done = run([sys.executable, "-c", FORKING, f"file://{tmp_path}/source.csv"], cwd=tmp_path, timeout=20)
    assert done.stdout.split() == ["1"], done.stderr


@needs("aiohttp")
def test_a_web_server_is_asked_for_a_file_once(remote_folder, tmp_path):
    with served(remote_folder) as server:
        configuration = configured(f"{server}/part_1.h5", cache=str(tmp_path / "cache"))
        for _ in range(2):
            assert load(configuration, MPI.COMM_SELF, 0).training.y[0].tolist() == [1, 1, 1]
        assert CountingFiles.downloads.count("/part_1.h5") == 1


@needs("aiohttp")
@pytest.mark.mpi
@pytest.mark.parametrize(("together", "keep"), [(True, True), (False, True), (False, False)])
def test_ranks_of_a_host_fetch_one_copy_together(remote_folder, tmp_path, monkeypatch, together, keep):
    cache, program = tmp_path / "cache", str(Path(__file__).with_name("load_remote.py"))
    if not together:  # a copy is deleted when its last reader leaves, so all readers must have started
        monkeypatch.setattr(CountingFiles, "is_ready", lambda: n_waiting_for_a_lock_in(cache) == 3)
    with served(remote_folder) as server:
        done = in_world(4, program, f"{server}/part_1.h5", str(cache), str(int(together)), str(int(keep)), timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3"] * 4
    assert CountingFiles.downloads.count("/part_1.h5") == 1
    assert visible(cache) == (["part_1.h5"] if keep else [])


def test_partial_copies_of_a_dead_process_are_removed(remote_folder, tmp_path):
    url, cache = f"file://{remote_folder}/part_1.h5", tmp_path / "cache"
    with finding.Copies(cache, True) as copies:
        path = copies.path(url)
    path.unlink()
    killed_while_writing(path)
    assert len(list(cache.glob(".*.h5"))) == 1
    with finding.Copies(cache, True) as copies:
        assert copies.path(url) == path
    assert not list(cache.glob(".*.h5"))
    assert path.exists()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file:///nowhere/a.h5", "there is no such file"),
        ("file:///nowhere/*.h5", "no file matches this pattern"),
        ("nonsense://a/b.h5", "Protocol not known"),
        ("memory://a/b.npy", "NPY files cannot be read from a URL"),
    ],
)
def test_a_url_that_leads_nowhere_is_named(place, said):
    with pytest.raises(DataError, match=said) as caught:
        count_samples(configured(place))
    assert f"data.train: {place}" in str(caught.value)


def test_npy_files_that_a_glob_of_urls_matches_are_refused(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"X\.npy: NPY files cannot be read from a URL"):
        count_samples(configured(f"file://{tmp_path}/*"))


def test_a_folder_that_cannot_be_created_is_named(remote_folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot be copied to .*/file/cache") as caught:
        loaded(f"file://{remote_folder}/part_0.h5", cache=str(tmp_path / "file" / "cache"))
    assert "cache: DIR" in caught.value.cure


def test_a_full_disk_is_not_a_problem_of_the_network(remote_folder, tmp_path, monkeypatch):
    tries = []

    def full(*_):
        tries.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fsspec.implementations.local.LocalFileSystem, "get_file", full)
    with pytest.raises(DataError, match=r"cannot be copied to .*No space left") as caught:
        loaded(f"file://{remote_folder}/part_0.h5", cache=str(tmp_path / "cache"))
    assert len(tries) == 1
    assert caught.value.cure == "name a folder with free space: cache: DIR"


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSYS, "of a local file system"),
        (errno.ENOTSUP, "of a local file system"),
        (errno.ENOLCK, "of a local file system"),
        (errno.EACCES, "that you may write to"),
    ],
)
def test_a_cache_without_locks_or_permission_is_refused_with_its_cure(
    remote_folder, tmp_path, monkeypatch, number, cure
):
    def flock(*_):
        raise OSError(number, "no lock")

    monkeypatch.setattr(finding.fcntl, "flock", flock)
    with pytest.raises(DataError, match=r"cannot be copied to .*no lock") as caught:
        loaded(f"file://{remote_folder}/part_0.h5", cache=str(tmp_path / "cache"))
    assert caught.value.cure == f"name a folder {cure}: cache: DIR"


@needs("aiohttp")
def test_a_server_that_fails_is_asked_again(remote_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(finding, "PAUSE_S", 0.01)

    class Failing(CountingFiles):
        def do_GET(self):
            self.downloads.append(self.path)
            self.send_error(503)

        def do_HEAD(self):
            self.send_error(503)

    handler = functools.partial(Failing, directory=str(remote_folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            CountingFiles.downloads.clear()
            with pytest.raises(DataError, match="cannot be fetched: 503"):
                loaded(f"http://127.0.0.1:{server.server_port}/part_0.h5", cache=str(tmp_path / "cache"))
            assert len(CountingFiles.downloads) == finding.N_TRIES
        finally:
            server.shutdown()


def test_a_protocol_that_is_not_installed_says_what_to_install():
    with pytest.raises(UserError, match=r"root://.*pip install"):
        try:
            count_samples(configured("root://eospublic.cern.ch//a.h5"))
        except UserError as error:
            raise UserError(str(error).replace("\n", " ")) from None


@needs("aiohttp")
def test_an_unreachable_server_is_named(monkeypatch):
    monkeypatch.setattr(finding, "PAUSE_S", 0.01)
    with pytest.raises(DataError, match="check the URL"):
        count_samples(configured("http://127.0.0.1:9/a.h5"))
