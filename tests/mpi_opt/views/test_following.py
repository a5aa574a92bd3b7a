"""Notices, metrics and the log of a search in JSON lines."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_opt.cli.main import run as program
from mpi_opt.cli.search_progress import SearchProgress
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.trial import Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.study.opening.lease import leased
from mpi_opt.study.progress import Progress
from mpi_opt.study.status import BlockStatus, NewRuns, SearchStatus
from mpi_opt.study.study import Study
from mpi_opt.views import following
from mpi_opt.views.following import Notices
from mpi_opt.views.text.search_summary import end_in_short
from mpi_opt.views.trackers import JsonLog
from tests.in_process import in_process
from tests.mpi_opt.outcomes import an_outcome, several_figures
from tests.mpi_opt.store.made_up import make_study
from tests.mpirun import patient_s
from tests.optional_packages import needs

SPACE = """
study: parabola
store: sqlite:///parabola.db
objective: objective.py:objective
space: {{x: {{type: real, low: 0.0, high: 2.0}}}}
search: {{strategy: random, trials: 3, {more}}}
"""

RECORD = 'echo "$MPI_OPT_EVENT|$MPI_OPT_STUDY|$MPI_OPT_STORE|$MPI_OPT_MESSAGE|$(cat)" >> notices'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "objective.py").write_text("def objective(trial):\n    return trial.parameters['x']\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(more: str) -> Path:
    Path("space.yaml").write_text(SPACE.format(more=more))
    return Path("space.yaml").resolve()


def notify(command: str, more: str = "") -> Notices:
    said: list[str] = []
    write(f"notify: {{command: {json.dumps(command)}{more}}}")
    configuration = read_study(Path("space.yaml"))
    made = Notices(configuration.search.notify, configuration, said.append)
    made.said = said
    return made


def lines_after(made: Notices, n: int) -> list[list[str]]:
    until = time.monotonic() + patient_s(10)
    while made._threads and any(one.is_alive() for one in made._threads) and time.monotonic() < until:
        time.sleep(0.01)
    found = [line.split("|") for line in Path("notices").read_text().splitlines()] if Path("notices").exists() else []
    assert len(found) == n
    return found


# notices


def test_a_command_receives_the_event_and_the_message(folder, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    made = notify(f'{RECORD}; [ -z "$OMPI_COMM_WORLD_RANK" ]')
    made.send("finished", "all trials\nhave ended: postgresql://me:secret@host/db")
    ((event, study, store, message, standard_input),) = lines_after(made, 1)
    assert (event, study, store) == ("finished", "parabola", "sqlite:///parabola.db")
    assert message == standard_input == "parabola: all trials have ended: postgresql://me:***@host/db"
    assert made.said == []  # it did not see the variable of MPI


def test_a_message_has_printable_characters_only(folder):
    made = notify(RECORD)
    made.send("failed", "ValueError: \x00 \udc80 \x1b[31m é\u2028→ see")
    ((_, _, _, message, standard_input),) = lines_after(made, 1)
    assert message == standard_input == "parabola: ValueError: [31m é → see"
    made._study = "\ud800"
    made.send("failed", "no")
    made.close()
    assert len(made.said) == 1 and made.said[0].startswith("the command of search.notify cannot be started: ")


def test_a_command_that_fails_or_hangs_is_a_note(folder, monkeypatch):
    made = notify("exit 3")
    made.send("stopped", "")
    made.close()
    assert made.said == ["the command of search.notify ended with status 3 (stopped)"]
    made = notify("sleep 1000 & echo $! > child; wait", ", timeout: 0.2")
    made.send("stopped", "")
    made.close()
    assert made.said == ["the command of search.notify took longer than 0.2 s and was killed"]
    child = int(Path("child").read_text())
    until = time.monotonic() + patient_s(5)
    while Path(f"/proc/{child}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path(f"/proc/{child}").exists()


def test_a_command_does_not_delay_the_search(folder, monkeypatch):
    monkeypatch.setattr(following, "END_S", 0.1)
    made, began = notify("sleep 3"), time.monotonic()
    made.send("finished", "")
    made.close()
    assert time.monotonic() - began < 2


def status(idle_s: float, median_s: float | None, activity: str = "running") -> SearchStatus:
    with Store.open("sqlite://") as store:
        make_study(store, n_trials=4)
        found = SearchStatus.read(store, None)
    now = datetime.now(UTC)
    at, since = (
        (now - timedelta(seconds=seconds)).isoformat(timespec="microseconds") for seconds in (idle_s, 2 * idle_s + 1)
    )
    return replace(found, activity=activity, last_ended_at=at, since=since, median_duration_s=median_s)


def test_a_search_without_results_for_several_durations_is_reported_once(folder):
    made = notify(RECORD, ", stalled: 3")
    made.take(status(50, 10))  # less than a minute
    made.take(status(100, 40))
    made.take(status(1000, None))
    made.take(status(1000, 40, "silent"))
    made.take(replace(status(1000, 40), wanted=1))  # all have ended, and the best points run again
    made.take(replace(status(1000, 40), wanted=1, new_runs=NewRuns("parabola.confirm3", 0, 8)))
    lines_after(made, 0)
    stalled = status(130, 40)
    made.take(stalled)
    made.take(stalled)
    ((event, *_, message),) = lines_after(made, 1)
    assert event == "stalled"
    assert re.fullmatch(r"parabola: no trial has ended for 2 min 1\d s; trials take 40 s \(median\)", message)
    blocks = [BlockStatus(block, "1", f"node{block}", block, f"2026-01-0{9 - block}T12:00:00") for block in (3, 4)]
    made.take(replace(status(140, 40), blocks=[*blocks, replace(blocks[1], number=None)]))  # one has ended in between
    assert "trial 4 runs longest, on node4, since 2026-01-05 12:00:00 UTC" in lines_after(made, 2)[1][3]
    made.take(replace(status(150, 40), wanted=1, new_runs=NewRuns("parabola.confirm3", 1, 8)))
    lines_after(made, 3)


def test_a_search_sends_notices_of_its_end(folder):
    write(f"notify: {json.dumps(RECORD)}")
    assert in_process("search", "space.yaml", cwd=folder).returncode == 0
    assert in_process("search", "space.yaml", "--trials", "4", "--time-limit", "0.000001", cwd=folder).returncode == 75
    Path("objective.py").write_text("def objective(trial):\n    raise ValueError('no')\n")
    assert in_process("search", "space.yaml", "--study", "other", cwd=folder).returncode == 1
    found = [line.split("|") for line in Path("notices").read_text().splitlines()]
    assert [(event, study) for event, study, *_ in found] == [
        ("finished", "parabola"),
        ("stopped", "parabola"),
        ("failed", "other"),
    ]
    assert found[0][3].startswith("parabola: all trials have ended; 3 trials ended; best ")
    assert "; 3 of 4 trials ended; best " in found[1][3]
    assert "the time limit is reached" in found[1][3] or "another trial would likely end" in found[1][3]
    assert "ValueError: no" in found[2][3]


def test_an_unexpected_error_is_a_failure(folder, monkeypatch):
    def read_code(plan: Plan) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Plan, "read_code", read_code)
    write(f"notify: {json.dumps(RECORD)}")
    assert in_process("search", "space.yaml", cwd=folder).returncode == 1
    assert Path("notices").read_text().split("|")[3] == "parabola: [Errno 5] Input/output error"


def test_the_message_of_the_end_is_about_the_end(folder):
    """A hint may be recorded later, and new runs of the best points may be missing."""
    assert in_process("search", str(write("confirm: 2")), cwd=folder).returncode == 0
    assert program(["hint", "x=1", "--study", "parabola"]) == 0
    study = Study.open("sqlite:///parabola.db", "parabola")
    assert end_in_short(study).startswith("all trials have ended; 3 trials ended; best ")
    study.is_finished = False
    assert end_in_short(study).startswith("not all new runs of the best points have ended; 3 of 3 trials ended; best ")


def test_the_message_of_the_end_names_the_first_of_several_figures_of_merit(folder):
    Path("objective.py").write_text("def objective(trial):\n    return trial.parameters['x'], 1.0\n")
    path = write("seed: 1")
    path.write_text(path.read_text() + "figure_of_merit: [loss, auc]\ndirection: [minimize, maximize]\n")
    assert in_process("search", "space.yaml", cwd=folder).returncode == 0
    assert "; 3 trials ended; best loss 0." in end_in_short(Study.open("sqlite:///parabola.db", "parabola"))


def test_a_search_sends_a_notice_of_its_restarts_and_records_each(folder, monkeypatch):
    """The first of two starts was lost before it could open the store."""
    monkeypatch.setattr("mpi_learn.job.started_by._reason", "the disk is full\nrank 0 was lost")
    write(f"notify: {json.dumps(RECORD)}")
    assert in_process("search", "space.yaml", cwd=folder).returncode == 0
    found = sorted(line.split("|")[0] + line.split("|")[3] for line in Path("notices").read_text().splitlines())
    assert found[1] == "restartedparabola: the disk is full; rank 0 was lost"
    with Store.open("sqlite:///parabola.db", read_only=True) as store:
        events = store.events(store.study("parabola").id)
    assert [(event.kind, event.detail) for event in events[:2]] == [
        ("search_restarted", "the disk is full"),
        ("search_restarted", "rank 0 was lost"),
    ]
    assert SearchProgress(Path("space.yaml"), {}).n_restarts() == 2


def test_a_job_that_is_given_up_sends_a_notice(folder):
    path = write(f"notify: {json.dumps(RECORD)}")
    SearchProgress(path, {}).notify_given_up("given up after 3 restarts\n  1. rank 0 was lost")
    assert (
        Path("notices")
        .read_text()
        .startswith("given_up|parabola|sqlite:///parabola.db|parabola: given up after 3 restarts 1.")
    )
    SearchProgress(write("seed: 1"), {}).notify_given_up("given up")
    assert len(Path("notices").read_text().splitlines()) == 1
    SearchProgress(folder / "absent.yaml", {}).notify_given_up("given up")


def test_the_progress_of_a_search_is_read_from_its_store(folder):
    progress = SearchProgress(write("seed: 1"), {"search.trials": None})
    assert progress.work_done() is None
    assert progress.is_alive() is None
    assert progress.n_restarts() is None
    assert in_process("search", "space.yaml", cwd=folder).returncode == 0
    assert (progress.work_done().measure, progress.work_done().text) == (3, "3 trials ended so far")
    assert progress.is_alive() is False
    with Store.open("sqlite:///parabola.db") as store, leased(store, store.study("parabola")) as lease:
        assert progress.is_alive() is True
        store.leases.renew(store.study("parabola").id, lease.record.token, "later")
        assert progress.is_alive() is True
    assert progress.is_alive() is True, "a search that has released its lease is about to end"
    assert progress.is_alive() is False


# metrics


@needs("prometheus_client")
def test_metrics_are_those_of_the_status(folder):
    from prometheus_client.parser import text_string_to_metric_families

    from mpi_opt.views.following import MetricsFile

    block = BlockStatus(0, "1-3", "node1", 7, datetime.now(UTC).isoformat())
    one = replace(status(10, 5), trials_per_hour=12.5, blocks=[block, replace(block, block=1, number=None)])
    MetricsFile(Path("search.prom")).take(one)
    samples = {
        (sample.name, sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(Path("search.prom").read_text())
        for sample in family.samples
    }
    counts = {state: samples["mpi_opt_trials", state] for state in ("queued", "running", *one.trials)}
    assert counts == {"queued": 0, "running": 0} | one.trials
    assert samples["mpi_opt_trials_wanted", None] == 60
    assert samples["mpi_opt_trials_per_hour", None] == 12.5
    assert (
        samples["mpi_opt_blocks", "busy"] == samples["mpi_opt_blocks", "idle"] == samples["mpi_opt_running", None] == 1
    )
    ended = datetime.fromisoformat(one.last_ended_at).timestamp()
    assert samples["mpi_opt_last_trial_ended_timestamp_seconds", None] == pytest.approx(ended)
    assert ("mpi_opt_expected_end_timestamp_seconds", None) not in samples  # unknown
    assert [file.name for file in folder.glob("search.prom*")] == ["search.prom"]


@needs("prometheus_client")
def test_a_search_writes_its_metrics(folder, monkeypatch):
    monkeypatch.setattr(following, "INTERVAL_S", 0.05)
    write("metrics_file: search.prom")
    assert in_process("search", "space.yaml", cwd=folder).returncode == 0
    assert 'mpi_opt_trials{state="complete",study="parabola"} 3.0' in Path("search.prom").read_text()
    write("metrics_file: absent/search.prom")
    done = in_process("search", "space.yaml", cwd=folder)
    assert done.returncode == 2
    assert "search.metrics_file: there is no folder absent" in done.stderr
    write(f"metrics_file: {folder}")
    done = in_process("search", "space.yaml", cwd=folder)
    assert done.returncode == 2
    assert f"search.metrics_file: {folder} cannot be written" in done.stderr


def test_metrics_without_the_library_of_prometheus_are_refused(folder, monkeypatch):
    import sys

    from mpi_opt.views.following import MetricsFile

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r"needs prometheus_client(.|\n)*mpi-opt\[metrics\]"):
        MetricsFile(Path("search.prom"))


@pytest.mark.parametrize("key", ["notify: echo", "metrics_file: search.prom"])
def test_a_store_in_memory_cannot_be_followed(folder, key, capsys):
    write(key)
    assert program(["search", "space.yaml", "--store", "sqlite://"]) == 2
    assert f"search.{key.split(':')[0]}: the store is in memory" in capsys.readouterr().err


# the log


def test_the_log_has_a_json_object_for_each_event(folder):
    write("seed: 1")
    for _ in range(2):
        assert in_process("search", "space.yaml", "--log-json", "log.jsonl", cwd=folder).returncode == 0
    entries = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    assert entries[0]["event"] == "begins" and "parabola" in entries[0]["text"]
    ended = [entry for entry in entries if entry["event"] == "trial_ended"]
    assert [entry["trial"] for entry in ended] == [0, 1, 2]
    assert all(entry["figure_of_merit"] == entry["parameters"]["x"] for entry in ended)
    assert [entry["event"] for entry in entries].count("ended") == 2  # the second search has appended its events
    times = [datetime.fromisoformat(entry["at"]) for entry in entries]
    assert times == sorted(times)


def test_the_log_writes_each_event_with_its_values_and_passes_it_on(tmp_path):
    outcome, proposal = an_outcome(4, "failed", None, duration_s=2.5, error="ValueError: no"), Proposal(4, {"x": 0.5})
    events = {
        "begins": ("a study",), "resumed": ("the study",), "ready": (2,), "started": (3, 4),
        "finished": (3, outcome, proposal), "requeued": (5,), "given_up": (6,), "dissolved": (7,),
        "note": ("a note",), "tick": (),
    }  # fmt: skip
    assert set(events) == {name for name in vars(Progress) if not name.startswith("_")}
    seen: dict[str, tuple[object, ...]] = {}
    log = JsonLog(tmp_path / "log", SimpleNamespace(**{name: partial(note_event, seen, name) for name in events}))
    for name, values in events.items():
        getattr(log, name)(*values)
    log.close()
    assert seen == events
    ended = {"block": 3, "trial": 4, "state": "failed", "figure_of_merit": None, "duration_s": 2.5}
    written = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [{key: value for key, value in entry.items() if key != "at"} for entry in written] == [
        {"event": "begins", "text": "a study"},
        {"event": "block_ready", "block": 2},
        {"event": "trial_started", "block": 3, "trial": 4},
        {"event": "trial_ended", **ended, "parameters": {"x": 0.5}, "error": "ValueError: no"},
        {"event": "trial_requeued", "block": 5},
        {"event": "block_given_up", "block": 6},
        {"event": "block_dissolved", "block": 7},
        {"event": "note", "text": "a note"},
        {"event": "ended"},
    ]


def test_a_log_that_cannot_be_written_is_refused_at_the_start(folder):
    write(f"notify: {json.dumps(RECORD)}")
    done = in_process("search", "space.yaml", "--log-json", "absent/log.jsonl", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("mpi-opt: --log-json: absent/log.jsonl cannot be written: No such file")
    assert "status of the search" not in done.stderr + done.stdout
    done = in_process("search", "space.yaml", "--store", "absent/parabola.db", cwd=folder)
    assert done.returncode == 2
    assert "status of the search" not in done.stderr + done.stdout


def test_a_log_on_a_full_disk_is_a_note(tmp_path):
    said: list[str] = []
    log = JsonLog(Path("/dev/full"), SimpleNamespace(note=said.append, ready=lambda block: None))
    for block in range(3):
        log.ready(block)
    log.close()
    assert said == ["--log-json: No space left on device; the log will lack events"]


def test_the_log_has_all_figures_of_merit(tmp_path):
    log = JsonLog(tmp_path / "log", Progress())
    log.finished(0, an_outcome(4, "complete", several_figures({"loss": 0.5, "auc": 0.9})), Proposal(4, {"x": 0.5}))
    (entry,) = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert entry["figure_of_merit"] == 0.5
    assert entry["figures_of_merit"] == {"loss": 0.5, "auc": 0.9}


def test_each_line_of_a_log_is_json(tmp_path):
    """After a line that was not written completely, and with the password in a text with quotes."""
    path = tmp_path / "log"
    path.write_text('{"at": "2026-01-01T00:00:00+00:00", "eve')
    log, text = JsonLog(path, Progress()), 'http://host/?a=b&password=secret"2 é\x01\n\udc80'
    log.note(text)
    log.close()
    log.note("late")
    _, note, ended = path.read_text().splitlines()
    assert json.loads(note)["text"] == text.replace("secret", "***")
    assert json.loads(ended)["event"] == "ended"
    JsonLog(path, Progress()).close()
    assert len(path.read_text().splitlines()) == 4


def note_event(seen: dict[str, tuple[object, ...]], name: str, *values: object) -> None:
    seen[name] = values


# programs that only read


def test_neither_the_follower_nor_a_restart_creates_the_store_that_it_reads(folder):
    """It would hide that the file of a search was removed."""
    said, seen = [], []
    configuration = read_study(write("seed: 1"))
    following._Follower(configuration, [seen.append], said.append)._pass_on()
    assert [line for line in said if "cannot be read or written" in line] == said != []
    assert SearchProgress(Path("space.yaml"), {}).work_done() is None
    assert not seen and not Path("parabola.db").exists()


@pytest.mark.parametrize(
    "command",
    ["results", "best", "report", "dashboard", "status", "plot history", "results --sql SELECT", "hint x=1"],
)
def test_a_command_about_a_study_does_not_create_its_store(folder, command, capsys):
    assert program([*command.split(), "--store", "none.db"]) == 2
    assert "none.db" in capsys.readouterr().err
    assert list(Path().glob("none*")) == []
