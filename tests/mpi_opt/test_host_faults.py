"""Full disks, too little memory and lost servers: no trial has failed because of them, and the search waits or ends."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from mpi4py import MPI

from mpi_learn.errors import DataError, MPILearnError, SavingError
from mpi_learn.mpi import host_fault
from mpi_learn.mpi.communicators import agreed_errors, as_training_error
from mpi_opt.coordinator.blocks import faults as host_faults
from mpi_opt.core.trial import Outcome
from mpi_opt.errors import HostFailed, UserError
from mpi_opt.store import Store
from tests.in_process import in_process
from tests.mpi_opt.fakes import ListedStore, ScriptedLink
from tests.mpi_opt.outcomes import an_outcome
from tests.mpi_opt.test_coordinator import search, squares
from tests.optional_packages import needs


def caused_by(cause: BaseException, error: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


FULL = OSError(errno.ENOSPC, "No space left on device")

KINDS = {
    host_fault.FULL_DISK: (
        FULL,
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        caused_by(FULL, SavingError("the checkpoint cannot be written")),
        caused_by(caused_by(FULL, ValueError()), RuntimeError("no")),
        OSError("Can't synchronously write data (errno = 28, error message = 'No space left on device')"),
    ),
    host_fault.MEMORY: (MemoryError(), OSError(errno.ENOMEM, ""), type("OutOfMemoryError", (RuntimeError,), {})()),
    host_fault.CONNECTION: (
        ConnectionRefusedError(),
        caused_by(ConnectionResetError(), DataError("the file cannot be read")),
        OSError(errno.EHOSTUNREACH, ""),
    ),
    host_fault.DISK: (OSError(errno.EIO, ""), SavingError("PytorchStreamWriter failed")),
    host_fault.PROCESSES: (OSError(errno.EMFILE, ""),),
    "": (ValueError("no"), DataError("there is no column y"), FileNotFoundError(errno.ENOENT, "")),
}


@pytest.mark.parametrize(("kind", "error"), [(kind, error) for kind, errors in KINDS.items() for error in errors])
def test_the_kind_of_a_fault_is_that_of_the_errors_cause(kind, error):
    assert host_fault.kind_of(error) == kind
    sent = pickle.loads(pickle.dumps(as_training_error(error, 3)))
    assert sent.host_fault == host_fault.kind_of(sent) == kind


def test_an_error_that_all_ranks_raise_keeps_the_fault_of_the_rank_that_had_it():
    with pytest.raises(UserError) as raised, agreed_errors(MPI.COMM_SELF):
        try:
            raise FULL
        except OSError as error:
            raise DataError("cannot be copied") from error
    sent = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(sent, MPILearnError)
    assert host_fault.kind_of(sent) == host_fault.FULL_DISK


class Failing:
    """Runs the trial with the square of x. `faults` has for each trial the kinds of fault of its attempts."""

    def __init__(self, faults: dict[int, list[str]]) -> None:
        self.faults = faults

    def __call__(self, assignment) -> Outcome:
        kinds = self.faults.get(assignment.number, [])
        if not kinds:
            return squares(assignment)
        return an_outcome(
            assignment.number, "failed", error=f"OSError: of {assignment.number}", host_fault=kinds.pop(0)
        )


@pytest.fixture
def quick(monkeypatch) -> None:
    monkeypatch.setattr(host_faults, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(host_faults, "LONGEST_PAUSE_S", 0.02)


DISK, MEMORY = host_fault.FULL_DISK, host_fault.MEMORY


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_trial_that_met_a_full_disk_runs_again_until_there_is_space(blocks):
    strategy, store = search(ScriptedLink(Failing({1: [DISK] * 3})), trials=4, blocks=blocks)
    assert sorted(strategy.told) == [(n, float(n * n)) for n in range(4)]
    attempts = {finish.outcome.number: finish.attempt for finish in store.finished}
    assert attempts == {0: 1, 1: 4, 2: 1, 3: 1}
    assert store.requeued == [1, 1, 1]
    assert store.events[-1] == "study_finished"
    (detail,) = [text for text in store.details if "waits" in text][:1]
    assert "because of a full disk: OSError: of 1" in detail


@pytest.mark.usefixtures("quick")
def test_a_trial_without_memory_has_failed_if_another_one_succeeds_after_it():
    link = ScriptedLink(Failing({1: [MEMORY], 2: [MEMORY]}))
    strategy, store = search(link, trials=6)
    assert [number for number, _ in strategy.told] == [0, 3, 1, 2, 4, 5]  # the verdict comes with the success of 3
    failed = [finish for finish in store.finished if finish.outcome.state == "failed"]
    assert [(one.outcome.number, one.attempt, one.block) for one in failed] == [(1, 1, 0), (2, 1, 0)]
    assert store.events == ["study_finished"]


@pytest.mark.usefixtures("quick")
def test_a_trial_whose_connection_broke_runs_again_as_often_as_one_that_lost_a_rank():
    link = ScriptedLink(Failing({1: [host_fault.CONNECTION], 3: [host_fault.CONNECTION] * 2}))
    strategy, store = search(link, trials=6, retries=1)
    ended = {finish.outcome.number: (finish.outcome.state, finish.attempt) for finish in store.finished}
    assert ended == dict.fromkeys((0, 2, 4, 5), ("complete", 1)) | {1: ("complete", 2), 3: ("failed", 2)}
    assert len(strategy.told) == 6


@pytest.mark.usefixtures("quick")
def test_the_last_trial_has_failed_if_no_other_one_can_show_whose_fault_it_is():
    strategy, store = search(ScriptedLink(Failing({3: [MEMORY]})), trials=4)
    assert [(one.outcome.number, one.outcome.state) for one in store.finished][-1] == (3, "failed")
    assert len(strategy.told) == 4
    assert store.events == ["study_finished"]


@pytest.mark.usefixtures("quick")
def test_several_trials_without_memory_one_after_the_other_run_again():
    faults = Failing({0: [MEMORY], 1: [MEMORY], 2: [MEMORY]})
    strategy, store = search(ScriptedLink(faults), trials=5)
    assert sorted(strategy.told) == [(n, float(n * n)) for n in range(5)]
    assert store.requeued == [0, 1, 2]
    assert store.events == ["host_fault", "study_finished"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", [DISK, MEMORY])
def test_a_search_that_can_run_no_trial_ends_unfinished_and_uses_up_none(kind, monkeypatch):
    monkeypatch.setattr(host_faults, "PATIENCE_S", 0.1)
    monkeypatch.setattr(host_faults, "DISK_PATIENCE_S", 0.1)
    store = ListedStore()
    with pytest.raises(HostFailed, match=f"because of {kind}: OSError: of ") as raised:
        search(ScriptedLink(Failing({number: [kind] * 1000 for number in range(50)})), trials=50, blocks=2, store=store)
    assert raised.value.exit_status == 75
    assert not store.finished
    assert {start.proposal.number for start in store.started} == set(store.requeued)
    assert len(set(store.requeued)) <= 4
    assert store.events[-1] == "search_stopped"


@pytest.mark.usefixtures("quick")
def test_a_search_continues_while_another_block_may_still_succeed(monkeypatch):
    """Block 0 has no memory; the trial on block 1 takes longer than `PATIENCE_S`."""
    monkeypatch.setattr(host_faults, "PATIENCE_S", 0.05)

    class Slow(ScriptedLink):
        """Trial 1 ends when the others have failed often enough."""

        def receive(self, timeout_s, is_interrupted):
            if list(self.assigned) == [1] and faults.faults[0] and not self.waiting:
                time.sleep(0.01)
                return []
            return super().receive(timeout_s, is_interrupted)

    faults = Failing({number: [MEMORY] * 12 for number in (0, 2, 3)})
    strategy, _ = search(Slow(faults, lambda numbers: int(numbers[0] == 1 and len(numbers) > 1)), trials=4, blocks=2)
    assert dict(strategy.told)[1] == 1.0
    assert len(strategy.told) == 4


def test_a_block_whose_host_alone_has_a_full_disk_is_retired(monkeypatch):
    monkeypatch.setattr(host_faults, "FIRST_PAUSE_S", 0.0)

    class OneHost(ScriptedLink):
        """Every trial on the block of rank 1 meets a full disk."""

        def receive(self, timeout_s, is_interrupted):
            self.on_rank_1 = {number for number, (rank, _) in self.assigned.items() if rank == 1}
            return super().receive(timeout_s, is_interrupted)

    def run(assignment) -> Outcome:
        return Failing({number: [DISK] for number in link.on_rank_1})(assignment)

    link = OneHost(run)
    strategy, store = search(link, trials=60, blocks=2)
    assert sorted(strategy.told) == [(n, float(n * n)) for n in range(60)]
    assert "block_retired" in store.events


@pytest.fixture
def full_folder(tmp_path) -> Iterator[Path]:
    """The folder of a file system of 1 MB that is full."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]).returncode:
        pytest.skip("needs the right to mount a file system")
    (folder / "fill").write_bytes(bytes(1020 * 1024))
    yield folder
    subprocess.run(["umount", folder], check=True)


@needs("torch")
@pytest.mark.usefixtures("quick")
def test_a_full_disk_for_checkpoints_fails_no_trial(full_folder, tmp_path, monkeypatch):
    (tmp_path / "m.py").write_text("import torch\ndef build(u):\n    return torch.nn.Linear(8, 2)\n")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", X=rng.normal(size=(40, 8)).astype("f4"), y=rng.integers(0, 2, 40))
    content = {
        "study": "t",
        "store": "sqlite:///t.db",
        "figure_of_merit": "val_loss",
        "space": {"u": {"type": "integer", "low": 2, "high": 80}},
        "search": {"strategy": "random", "trials": 3},
        "training": {
            "model": "m.py:build",
            "data": {"train": ["d.npz"], "features": "X", "labels": "y", "validation_fraction": 0.5},
            "loss": "cross_entropy",
            "checkpoint": {"path": "small"},
            "epochs": 1,
        },
    }
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr(host_faults, "DISK_PATIENCE_S", 0.1)
    done = in_process("search", "space.yaml", cwd=tmp_path)
    assert done.returncode == 75, done.stderr
    assert "because of a full disk" in done.stderr
    assert "the same command then continues the study" in done.stderr
    with Store.open(str(tmp_path / "t.db")) as store:
        assert {trial.state for trial in store.trials(1)} == {"queued"}
    (full_folder / "fill").unlink()
    assert in_process("search", "space.yaml", cwd=tmp_path).returncode == 0
    with Store.open(str(tmp_path / "t.db")) as store:
        assert [trial.state for trial in store.trials(1)] == ["complete"] * 3
