"""Timelines: recorded by each rank, merged afterwards."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from mpi_learn.cli.commands import main
from mpi_learn.errors import DataError
from mpi_learn.training.timing import tracing
from mpi_learn.training.timing.tracing import (
    COMMUNICATION,
    COMPUTE,
    DATA,
    Monitor,
    RankTrace,
    chrome_trace,
    read_traces,
    summary,
)
from tests.in_process import in_process
from tests.mpi_learn.configurations_for_tests import NUMBERS
from tests.mpi_learn.models_for_tests import line
from tests.optional_packages import needs


@pytest.fixture
def traces(tmp_path):
    from mpi4py import MPI

    from mpi_learn import train

    configuration = NUMBERS | {"epochs": 2, "batch_size": 20, "trace": str(tmp_path / "traces")}
    train(configuration, MPI.COMM_SELF, data=line())
    return tmp_path / "traces"


@needs("keras")
def test_training_leaves_a_timeline_of_every_step(traces):
    (trace,) = read_traces(traces)
    names = [event[0] for event in trace.events]
    assert (trace.rank, trace.role) == (0, "worker")
    assert [names.count(name) for name in ("batch", "gradient", "exchange", "update", "validation")] == [20] * 4 + [2]
    expected = {"batch": DATA, "gradient": COMPUTE, "update": COMPUTE, "validation": COMPUTE}
    expected |= {"exchange": COMMUNICATION, "synchronize": COMMUNICATION}
    assert {event[:2] for event in trace.events} == expected.items()
    seconds = trace.seconds()
    assert all(value >= 0 for value in seconds.values())
    assert seconds[COMPUTE] > seconds[COMMUNICATION]


def test_a_span_within_another_counts_for_itself_only():
    second = 1_000_000_000
    events = [("exchange", COMMUNICATION, 0, 5 * second), ("update", COMPUTE, second, 2 * second),
              ("gradient", COMPUTE, 8 * second, 2 * second)]  # fmt: skip
    seconds = RankTrace(0, "here", "worker", events).seconds()
    assert seconds == {"compute": 4.0, "communication": 3.0, "data": 0.0, "idle": 3.0}


def test_merged_trace_has_a_row_for_every_rank_and_starts_at_zero():
    traces = [RankTrace(rank, f"host{rank // 2}", "worker", [("step", COMPUTE, 1000 + rank, 500)]) for rank in range(4)]
    events = [event for event in chrome_trace(traces)["traceEvents"] if event["ph"] == "X"]
    assert [(event["pid"], event["tid"]) for event in events] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert events[0]["ts"] == 0
    assert len(summary(traces).splitlines()) == 5


def test_the_summary_has_seconds_and_fractions_of_each_kind_for_each_rank():
    second = 1_000_000_000
    worker = [("batch", "data", 0, second), ("gradient", "compute", second, 6 * second),
              ("exchange", "communication", 8 * second, 2 * second)]  # fmt: skip
    master = [("serve", "idle", 0, 3 * second), ("update", "compute", 3 * second, second)]
    head, *rows = summary([RankTrace(0, "a", "master", master), RankTrace(12, "b", "worker", worker)]).splitlines()
    assert head.split() == ["rank", "role", "compute", "communication", "data", "idle"]
    assert [" ".join(row.split()) for row in rows] == [
        "0 master 1.000 s 25.0 % 0.000 s 0.0 % 0.000 s 0.0 % 3.000 s 75.0 %",
        "12 worker 6.000 s 60.0 % 2.000 s 20.0 % 1.000 s 10.0 % 1.000 s 10.0 %",
    ]


@needs("keras")
def test_command_writes_the_trace_and_prints_the_summary(traces, tmp_path):
    done = in_process("trace", str(traces), "-o", "trace.json", "--summary", cwd=tmp_path, main=main)
    assert done.returncode == 0
    assert "compute" in done.stdout
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


@needs("keras")
def test_command_creates_the_folder_of_the_trace_and_refuses_a_folder_as_the_file(traces, tmp_path):
    done = in_process("trace", str(traces), "-o", "new/trace.json", cwd=tmp_path, main=main)
    assert done.returncode == 0
    assert json.loads((tmp_path / "new" / "trace.json").read_text())["traceEvents"]
    (tmp_path / "file").touch()
    for output, said in (
        (str(tmp_path), "this is a folder\n  → write -o"),
        (".", "this is a folder\n  → write -o trace.json"),
        (str(tmp_path / "file" / "trace.json"), "the folder is not writable"),
    ):
        done = in_process("trace", str(traces), "-o", output, cwd=tmp_path, main=main)
        assert (done.returncode, done.stderr.count("mpi-learn:")) == (2, 1)
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@needs("keras")
def test_rank_that_was_killed_before_it_wrote_anything_is_left_out(traces, tmp_path):
    (file,) = traces.glob("rank-*.jsonl")
    (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "rank-00001.jsonl").touch()
    assert len(read_traces(tmp_path)) == 1


def test_folder_without_timelines_is_refused(tmp_path):
    with pytest.raises(DataError, match="no timelines"):
        read_traces(tmp_path)
    assert in_process("trace", str(tmp_path), "--summary", cwd=tmp_path, main=main).returncode == 2


def test_file_that_is_no_timeline_is_refused(tmp_path):
    (tmp_path / "rank-00000.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"this is not a timeline: .*\n.*train again"):
        read_traces(tmp_path)


def test_a_full_disk_ends_the_recording_and_not_the_training(tmp_path, capsys):
    timeline = tracing.RecordedTimeline(tmp_path, 0, "here", "worker")
    timeline.file = Path("/dev/full")
    for _ in range(3):
        with timeline.span("step", COMPUTE):
            pass
        timeline.write()
    assert capsys.readouterr().err == "trace: /dev/full ends here: No space left on device\n"


@pytest.mark.parametrize(("framework", "expected"), [("torch", 1.0), ("keras", 2.0)])
def test_memory_of_the_gpu_is_that_of_the_models_framework(monkeypatch, framework, expected):
    """User code may have loaded the other framework as well."""
    cuda = types.SimpleNamespace(is_available=lambda: True, memory_allocated=lambda: 2**20)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    memory = types.SimpleNamespace(get_memory_info=lambda device: {"current": 2**21})
    config = types.SimpleNamespace(list_logical_devices=lambda kind: ["GPU:0"], experimental=memory)
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    assert Monitor(framework).measure()["gpu_memory_mb"] == expected


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_peak_memory_has_the_unit_of_the_operating_system(monkeypatch, platform, unit):
    """`getrusage` counts KiB on Linux and bytes on macOS."""
    monkeypatch.setattr(tracing.sys, "platform", platform)
    usage = types.SimpleNamespace(ru_maxrss=5 * 2**20)
    monkeypatch.setattr(tracing.resource, "getrusage", lambda who: usage)
    assert Monitor("keras").measure()["peak_memory_mb"] == 5 * unit
