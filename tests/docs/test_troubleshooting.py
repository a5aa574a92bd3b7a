"""The troubleshooting page quotes the messages that occur: each test provokes one."""

from __future__ import annotations

import copy
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from mpi_learn.job.launch import find_mpirun, launch_environment
from mpi_opt.cli.main import main, run
from mpi_opt.coordinator.blocks import faults as host_faults
from mpi_opt.store import connecting
from mpi_opt.strategies.surrogates.fitting import Surrogate
from tests import session_folders
from tests.docs.pages import DOCS
from tests.mpirun import mpirun

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)

MODEL = "def build_model(units=8):\n    return None\n"
STUDY = {
    "study": "digits",
    "store": "sqlite:///digits.db",
    "space": {"units": {"type": "integer", "low": 1, "high": 9}},
    "folds": 2,
    "training": {
        "model": "model.py:build_model",
        "data": {"train": ["digits.h5"], "features": "X", "labels": "y"},
        "loss": "sparse_categorical_crossentropy",
    },
}
OBJECTIVE = "def objective(trial):\n    return trial.parameters['units']\n"
FUNCTION = {
    "study": "numbers",
    "store": "sqlite:///numbers.db",
    "objective": "objective.py:objective",
    "space": {"units": {"type": "integer", "low": 1, "high": 9}},
    "search": {"strategy": "random", "trials": 3},
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    from mpi_learn.known_data import prepare

    path = tmp_path_factory.mktemp("data") / "digits.h5"
    prepare("digits", path)
    return path


@pytest.fixture
def folder(tmp_path, digits, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("digits.h5").symlink_to(digits)
    Path("model.py").write_text(MODEL)
    Path("objective.py").write_text(OBJECTIVE)
    return tmp_path


def _check(content: dict, change: dict | None = None) -> None:
    content = copy.deepcopy(content)
    for key, value in (change or {}).items():
        section = content
        *path, last = key.split(".")
        for name in path:
            section = section.setdefault(name, {})
        section[last] = value
    Path("space.yaml").write_text(yaml.safe_dump(content))
    run(["check", "space.yaml"])


def _searched(*studies: str, change: dict | None = None) -> bool:
    Path("space.yaml").write_text(yaml.safe_dump(FUNCTION | (change or {})))
    for study in studies:
        with pytest.raises(SystemExit):
            main(["search", "space.yaml", "--study", study])
    return True


def _text(name: str, text: str, *arguments: str) -> None:
    Path(name).write_text(text)
    run(list(arguments))


def _under_mpirun(*arguments: str, consent: bool) -> None:
    environment = launch_environment()
    if not consent:
        environment = {name: value for name, value in environment.items() if "ALLOW_RUN_AS_ROOT" not in name}
    environment = {name: value for name, value in environment.items() if "MAPPING_POLICY" not in name.upper()}
    ended = subprocess.run(
        [find_mpirun(), *arguments, "true"], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    print(ended.stdout + ended.stderr, file=sys.stderr)


def _stale_session() -> None:
    """Starts ``mpirun`` with a process number for which another ``mpirun`` has left its files."""
    program = f"""
import os, platform, sys
folder = f"ompi.{{os.getpid()}}"
os.mkdir(folder)
open(f"{{folder}}/pmix.{{platform.node().partition('.')[0]}}.tool", "w").close()
os.execv({find_mpirun()!r}, ["mpirun", "-np", "1", "true"])
"""
    environment = launch_environment() | {session_folders.VARIABLE: str(Path.cwd())}
    subprocess.run([sys.executable, "-c", program], timeout=60, env=environment, check=False)


def _locked_store() -> None:
    _searched("numbers")
    with sqlite3.connect("numbers.db", isolation_level=None) as holder, patch.object(connecting, "WAIT_S", 0.5):
        holder.execute("BEGIN IMMEDIATE")
        _searched("numbers", change={"search": {"strategy": "random", "trials": 4}})
        holder.execute("ROLLBACK")


def _failing_model() -> None:
    with patch.object(Surrogate, "fit", lambda self, observed: 1 / 0), redirect_stdout(sys.stderr):
        _searched("numbers", change={"search": {"trials": 9, "options": {"initial_points": 4}}})


def _deleted_store() -> None:
    deleting = "import pathlib\n\ndef objective(trial):\n    pathlib.Path('numbers.db').unlink()\n    return 1.0\n"
    Path("objective.py").write_text(deleting)
    _searched("numbers")


def _full_disk() -> None:
    Path("objective.py").write_text(
        "import errno\n\ndef objective(trial):\n    raise OSError(errno.ENOSPC, 'no space')\n"
    )
    with patch.multiple(host_faults, DISK_PATIENCE_S=0.05, FIRST_PAUSE_S=0.05):
        _searched("numbers")


def _store_locked_meanwhile() -> None:
    Path("objective.py").write_text("import time\n\ndef objective(trial):\n    time.sleep(1)\n    return 1.0\n")
    Path("space.yaml").write_text(yaml.safe_dump(FUNCTION))
    command = [sys.executable, "-m", "mpi_opt", "search", "space.yaml"]
    search = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    holder = sqlite3.connect("numbers.db", isolation_level=None, timeout=60)
    for line in search.stdout:
        print(line, file=sys.stderr)
        if line.startswith("trial 0"):
            holder.execute("BEGIN IMMEDIATE")
        if "waits for its store" in line:
            break
    holder.execute("ROLLBACK")
    assert "done: 3/3" in search.communicate(timeout=60)[0]


def _started_twice(monkeypatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    Path("space.yaml").write_text(yaml.safe_dump(FUNCTION))
    run(["search", "space.yaml", "-n", "2"])


def _died_before_mpi() -> None:
    Path("objective.py").write_text(OBJECTIVE)
    Path("space.yaml").write_text(yaml.safe_dump(FUNCTION))
    dying = "import os, signal; os.environ['OMPI_COMM_WORLD_RANK'] == '2' and os.kill(os.getpid(), signal.SIGKILL);"
    program = f"{dying} from mpi_opt.cli.main import main; main(['search', 'space.yaml'])"
    print(mpirun(3, "-c", program, env={"MPI_LEARN_START_S": "3"}, timeout=60).stderr, file=sys.stderr)


PROVOKED: dict[str, Callable[[], object]] = {
    "cannot read the file": lambda: run(["check", "spaces.yaml"]),
    "this is not YAML": lambda: _text("space.yaml", "study: [a\nspace: }", "check", "space.yaml"),
    "unknown key": lambda: _check(STUDY, {"search.trails": 3}),
    "expected an integer": lambda: _check(STUDY, {"search.trials": "many"}),
    "is not used": lambda: _check(STUDY, {"space.width": {"type": "real", "low": 0, "high": 1}}),
    "is not a hyperparameter of the space": lambda: _check(STUDY, {"training.epochs": "$epochs"}),
    "there is no function": lambda: _check(STUDY, {"training.model": "model.py:model"}),
    "running this file raised": lambda: _text("objective.py", OBJECTIVE + "1 / 0\n") or _check(FUNCTION),
    "low must be less than high": lambda: _check(FUNCTION, {"space.units.low": 10}),
    "never takes the value": lambda: _check(FUNCTION, {"space.x": _dependent({"units": 11})}),
    "expected a duration": lambda: _check(FUNCTION, {"search.time_limit": "soon"}),
    "in this HDF5 file": lambda: _check(STUDY, {"training.data.features": "images"}),
    "does not produce the metric": lambda: _check(STUDY, {"figure_of_merit": "val_acc"}),
    "samples cannot be split into": lambda: _check(STUDY, {"folds": 5000}),
    "expected a Keras or PyTorch model": lambda: _check(STUDY),
    "building the model with": lambda: _text("model.py", "def build_model(units):\n    1 / 0\n") or _check(STUDY),
    "no *.db file in this folder": lambda: run(["results"]),
    "this folder has several *.db files": lambda: [Path(f"{name}.db").touch() for name in "ab"] and run(["results"]),
    "the store has several studies": lambda: _searched("one", "two") and run(["best"]),
    "there is no study": lambda: _searched("one") and run(["best", "--study", "on"]),
    "was created with another": lambda: _searched("one") and _searched("one", change={"direction": "maximize"}),
    "open for reading only": lambda: _searched("one") and run(["results", "--sql", "DELETE FROM trials"]),
    "this is not a database's URL": lambda: run(["results", "--store", "results.txt"]),
    "another program is writing to it": _locked_store,
    "the search waits for its store": _store_locked_meanwhile,
    "trials all failed": lambda: (
        _text("objective.py", "def objective(trial):\n    1 / 0\n") or _searched("one", change=MANY)
    ),
    "strategy failed": _failing_model,
    "while it was open": _deleted_store,
    "because of a full disk": _full_disk,
    "already runs under one": _started_twice,
    "attempt to run as root": lambda: _under_mpirun("-np", "1", consent=False),
    "There are not enough slots": lambda: _under_mpirun("-np", "4000", consent=True),
    "listener thread failed to start": _stale_session,
    "Timeout (": _died_before_mpi,
}
MANY = {"search": {"strategy": "random", "trials": 20}, "space": {"units": {"type": "real", "low": 0, "high": 1}}}


def _dependent(when: dict) -> dict:
    return {"type": "real", "low": 0, "high": 1, "when": when}


def test_every_heading_is_provoked():
    assert len(HEADINGS) == len(PROVOKED)
    for fragment in PROVOKED:
        assert any(fragment in heading for heading in HEADINGS), fragment


THOROUGH = ("the search waits for its store",)
CASES = [pytest.param(one, marks=pytest.mark.thorough) if one in THOROUGH else one for one in PROVOKED]


@pytest.mark.parametrize("fragment", CASES)
def test_message_occurs(fragment, folder, monkeypatch, capfd):
    if fragment == "attempt to run as root" and os.geteuid() != 0:
        pytest.skip("only root is refused")
    provoke = PROVOKED[fragment]
    provoke(monkeypatch) if provoke is _started_twice else provoke()
    heading = next(heading for heading in HEADINGS if fragment in heading)
    pattern = ".*".join(re.escape(part) for part in heading.split("…"))
    assert re.search(pattern, " ".join(capfd.readouterr().err.split()))
