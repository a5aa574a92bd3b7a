"""``mpi-opt new`` writes files that run unchanged, and never replaces files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mpi_opt.cli.commands.study_commands import write_template
from mpi_opt.cli.main import main, run
from mpi_opt.configuration.read_study import read_study
from tests.in_process import in_process
from tests.optional_packages import needs

KINDS = ("training", "function")


@pytest.mark.parametrize("kind", KINDS)
def test_template_passes_the_check_for_bad_input(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["new", "jets", "--kind", kind]) == 0
    configuration = read_study(tmp_path / "jets.yaml")
    assert configuration.study == "jets"
    assert (configuration.objective == "train") == (kind == "training")


def test_function_template_runs_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(["new", "jets", "--kind", "function"])
    with pytest.raises(SystemExit) as end:
        main(["search", "jets.yaml", "--trials", "2"])
    assert end.value.code == 0
    assert "the best trials:" in capsys.readouterr().out


@needs("keras")
def test_training_template_runs_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(["new", "jets"])
    ended = in_process("search", "jets.yaml", "--trials", "2", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "the best trials:" in ended.stdout


@pytest.mark.parametrize("suffix", [".yaml", ".py", ".h5"])
def test_template_does_not_overwrite_existing_files(suffix, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / f"jets{suffix}"
    mine.write_text("mine")
    assert run(["new", "jets"]) == 2
    assert mine.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../jets", "3jets", "-jets", "a b", ""])
def test_name_that_is_no_file_name_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["new", "--", name]) == 2
    assert not list(tmp_path.iterdir())
    assert "a name that starts with a letter or _ and has only letters, digits, _ and -" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["json", "numpy", "mpi_opt"])
def test_name_of_a_module_is_refused(name, tmp_path, monkeypatch, capsys):
    """`python -m mpi_opt` in the folder would import the new file in place of the module."""
    monkeypatch.chdir(tmp_path)
    assert run(["new", name, "--kind", "function"]) == 2
    assert not list(tmp_path.iterdir())
    assert f"{name} is a module of Python or of a package" in capsys.readouterr().err


def test_files_are_written_all_or_none(tmp_path, monkeypatch, capsys):
    """As on a full disk, whose error names no file."""
    monkeypatch.chdir(tmp_path)
    write = Path.write_text

    def full(path, text, **options):
        if path.suffix == ".py":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    assert run(["new", "jets", "--kind", "function"]) == 1
    assert not list(tmp_path.iterdir())
    assert "No space left on device: 'jets.py'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["true", "No", "null", "_1", "jets-2"])
def test_name_of_a_study_is_a_text_in_its_file(name, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("mpi_learn.known_data.prepare", lambda *_: None)
    write_template(name, kind, tmp_path)
    assert read_study(tmp_path / f"{name}.yaml").study == name


def test_written_files_are_reported_in_order(tmp_path):
    assert [path.name for path in write_template("a", "training", tmp_path)] == ["a.yaml", "a.py", "a.h5"]
