"""The commands that read a store, as typed by a user."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mpi_opt.cli.main import run as program
from mpi_opt.store import Store, reading
from mpi_opt.study.recommendation import STATES
from mpi_opt.study.study import Study
from mpi_opt.views.text import tables
from tests.in_process import in_process
from tests.mpi_opt.store.made_up import SPACE, make_study
from tests.optional_packages import needs, with_marks
from tests.timing import reference_s

HEAVY = {"mpi4py", "keras", "tensorflow", "torch", "pandas", "matplotlib", "sklearn"}


def answer(*arguments: str, cwd: Path | None = None) -> str:
    result = in_process(*arguments, cwd=cwd or Path.cwd())
    assert result.returncode == 0, result.stderr
    return result.stdout


def complaint(*arguments: str, cwd: Path | None = None) -> str:
    result = in_process(*arguments, cwd=cwd or Path.cwd())
    assert result.returncode == 2 and "Traceback" not in result.stderr, result.stderr
    return result.stderr


def test_results_without_a_study_lists_the_studies(digits_file: Path, digits: Study) -> None:
    heading, line = answer("results", "--store", str(digits_file)).splitlines()
    assert heading.split()[:3] == ["study", "direction", "strategy"]
    assert line.split()[:3] == ["digits", "minimize", "bayesian"]
    counts = digits.record.counts
    names, values = heading.split()[4:9], line[heading.index("complete") :].split()
    assert line[heading.index("ended") :].startswith(f"{digits.record.n_ended} of ")
    columns = dict(zip(names, map(int, values), strict=False))
    assert columns == {state: counts.get(state, 0) for state in STATES}


def test_list_of_studies_says_how_many_trials_of_each_have_ended(digits: Study) -> None:
    record = dataclasses.replace(digits.record, configuration={"search": {"trials": 300}})
    heading, line = tables.studies_table([record]).splitlines()
    assert line[heading.index("ended") :].startswith(f"{record.n_ended} of 300 ")


def test_results_are_best_first(digits_file: Path, digits: Study) -> None:
    heading, *lines = answer("results", "--store", str(digits_file), "--study", "digits").splitlines()
    assert len(lines) == 60
    assert set(SPACE) < set(heading.split())
    assert [int(line.split()[0]) for line in lines] == [trial.number for trial in digits.ranked()]


def test_results_name_the_latest_restart_of_the_search(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "some.db")) as store:
        study = make_study(store, n_trials=2)
        store.event(study.id, "search_restarted", "rank 0 was lost")
        store.event(study.id, "search_restarted", "mpirun was killed by SIGKILL")
    shown = answer("results", "--store", str(tmp_path / "some.db"), "--study", "digits")
    assert "2 restarts of the search, the latest at 20" in shown
    assert shown.rstrip().endswith("UTC: mpirun was killed by SIGKILL")


def test_results_as_json_hold_everything_of_the_best(digits_file: Path, digits: Study) -> None:
    (best,) = json.loads(answer("results", "--store", str(digits_file), "--best", "1", "--format", "json"))
    assert best["number"] == digits.best.number
    assert best["parameters"] == digits.best.parameters
    assert best["uncertainty"] == digits.best.uncertainty


def test_results_may_be_restricted_to_a_state_and_printed_as_csv(digits_file: Path, digits: Study) -> None:
    text = answer("results", "--store", str(digits_file), "--state", "failed", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["state"] for row in rows] == ["failed"] * digits.record.counts["failed"]
    assert all(row["error"].startswith("ValueError") for row in rows)


def test_results_of_one_trial_show_all_its_records(digits_file: Path) -> None:
    text = answer("results", "--store", str(digits_file), "--trial", "8")
    for word in ("learning_rate", "folds", "val_loss", "▁", "attempts", "lost", "rank 2 on node1 was lost", "complete"):
        assert word in text
    text = answer("results", "--store", str(digits_file), "--trial", "5")
    assert "in digits.py, trial 5" in text
    (trial,) = json.loads(answer("results", "--store", str(digits_file), "--trial", "8", "--format", "json"))
    assert len(trial["folds"]) == 3 and len(trial["attempts"]) == 2 and len(trial["curves"]) == 6


def test_terminal_shows_some_trials_and_says_how_to_see_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        make_study(store, n_trials=130, n_epochs=1, n_folds=1)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", terminal)
    assert program(["results", "--store", str(tmp_path / "a.db"), "--study", "digits"]) == 0
    *rows, hint = terminal.getvalue().splitlines()
    assert len(rows) == 1 + 100
    assert hint == "… and 30 more: append | less, or --format csv"  # --best shows complete trials only


def test_query_prints_the_same_values_as_the_study(digits_file: Path, digits: Study) -> None:
    query = "SELECT number, figure_of_merit FROM study_digits WHERE state = 'complete' ORDER BY figure_of_merit LIMIT 1"
    (row,) = json.loads(answer("results", "--store", str(digits_file), "--sql", query, "--format", "json"))
    assert row == {"number": digits.best.number, "figure_of_merit": digits.best.figure_of_merit}
    assert answer("results", "--store", str(digits_file), "--sql", query, "--format", "csv").startswith("number,")


def test_columns_of_the_same_name_are_all_in_the_json_of_a_query(digits_file: Path) -> None:
    query = "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a"
    (row,) = json.loads(answer("results", "--store", str(digits_file), "--sql", query, "--format", "json"))
    assert row == {"a": 1, "a_2": 2, "a_2_2": 3, "a_3": 4}


MISTAKES = [
    (("results", "--study", "digtis"), ["digtis", "did you mean digits?"]),
    (("results", "--study", "mnist"), ["mnist", "one of: digits"]),
    (("results", "--trial", "99"), ["no trial 99", "0 to 59"]),
    (("results", "--sql", "SELEKT 1"), ["SELEKT"]),
    (("results", "--sql", "SELECT * FROM digits"), ["digits", "views and tables: study_digits", "trials"]),
    (("results", "--sql", "DELETE FROM trials"), ["reading only"]),
    (("results", "--trial", "1", "--best", "3"), ["--best: --trial and --best cannot be combined"]),
    (("results", "--finished", "--sql", "SELECT 1"), ["--sql: --finished and --sql cannot be combined"]),
    (("results", "--store", "nowhere.db"), ["no such file"]),
    (("results", "--store", "nothing"), ["not a database's URL"]),
    (("best", "--trial", "99"), ["no trial 99"]),
    (("plot", "history", "-o", "picture.bmp"), ["picture.bmp", ".png, .svg or .pdf"]),
    (("plot", "history", "-o", "no/folder/x.png"), ["mkdir -p no/folder"]),
    (("plot", "history", "--x", "units"), ["--x"]),
    (("plot", "contour", "--x", "unit"), ["'unit' is not a hyperparameter", "units"]),
    (("plot", "curves", "--metric", "accuracy"), ["accuracy", "loss, val_loss"]),
    (("report", "-o", "no/folder/x.html"), ["mkdir -p no/folder"]),
    (("report", "-o", "."), ["is a folder", "-o report.html"]),
]


@pytest.mark.parametrize(("arguments", "words"), with_marks(MISTAKES, {"'plot'": "matplotlib"}))
def test_mistakes_are_reported_in_one_message(
    digits_file: Path, tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    store = () if "--store" in arguments else ("--store", str(digits_file))
    message = complaint(*arguments, *store, cwd=tmp_path)
    for word in words:
        assert word in message
    assert len(message.splitlines()) <= 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({7: 7}, "trial 7 cannot resume from trial 7"),
        ({7: 6, 6: 7}, "cannot resume from trial 7"),
        ({7: -1}, "trial 7 cannot resume from trial -1"),
        ({7: "six"}, "trial 7 cannot resume from trial six"),
        ({7: 6, 6: 3}, "trial 6 resumes from trial 3, which does not exist"),
    ],
)
def test_a_trial_that_resumes_from_no_earlier_trial_is_reported(
    tmp_path: Path, changes: dict[int, int | str], problem: str
) -> None:
    path = tmp_path / "edited.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=8)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM trials WHERE number = 3")
        for number, source in changes.items():
            connection.execute("UPDATE trials SET resume_from = ? WHERE number = ?", (source, number))
    connection.close()
    for command in ("best", "results"):
        message = complaint(command, "--store", str(path), "--trial", "7")
        assert problem in message and len(message.splitlines()) <= 2


def test_only_store_of_the_folder_is_found(digits_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPI_OPT_STORE", raising=False)
    assert "no *.db file" in complaint("results", cwd=tmp_path)
    (tmp_path / "a.db").write_bytes(digits_file.read_bytes())
    assert "digits" in answer("results", cwd=tmp_path)
    (tmp_path / "b.db").write_bytes(digits_file.read_bytes())
    assert "several *.db files: a.db, b.db" in complaint("results", cwd=tmp_path)
    monkeypatch.setenv("MPI_OPT_STORE", "sqlite:///b.db")
    assert "digits" in answer("results", cwd=tmp_path)


def test_message_about_a_study_without_a_complete_trial_names_the_study(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        store.create_study("young", strategy="random", seed=1, configuration={}, space=SPACE)
    assert "study young: no trial is complete yet" in complaint("best", "--store", str(tmp_path / "a.db"))


def test_paragraphs_of_the_help_fill_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in answer("tell", "--help").splitlines()]
    first = next(index for index, line in enumerate(lines) if line.startswith("On stdin"))
    paragraph = lines[first : lines.index("", first)]
    assert " ".join(paragraph).endswith("an object by name.")
    assert all(len(line) > 60 for line in paragraph[:-1])


def test_store_of_several_studies_asks_which(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        make_study(store, "one", 4)
        make_study(store, "two", 4)
    assert "one, two" in complaint("best", "--store", str(tmp_path / "a.db"))
    assert "study one" in answer("best", "--store", str(tmp_path / "a.db"), "--study", "one")


def test_best_is_a_training_yaml_with_every_hyperparameter_in_its_place(
    digits_file: Path, digits: Study, tmp_path: Path
) -> None:
    best = digits.best.parameters
    content = yaml.safe_load(answer("best", "--store", str(digits_file), cwd=tmp_path))
    wanted = {"name": best["optimizer"], "learning_rate": best["learning_rate"], "momentum": best.get("momentum")}
    assert content["optimizer"] == {key: value for key, value in wanted.items() if value is not None}
    assert content["parameters"] == {"units": best["units"], "activation": best["activation"]}
    assert content["model"] == "/home/ada/digits/digits.py:build_model"
    assert content["data"] == {"train": ["/home/ada/digits/digits.h5"], "features": "X", "labels": "y"}
    assert content["loss"] == "sparse_categorical_crossentropy"
    assert "$" not in yaml.safe_dump(content)
    other = next(trial for trial in digits.trials if trial.parameters["optimizer"] != best["optimizer"])
    content = yaml.safe_load(answer("best", "--store", str(digits_file), "--trial", str(other.number), cwd=tmp_path))
    assert ("momentum" in content["optimizer"]) == (other.parameters["optimizer"] == "sgd")


def test_best_of_a_function_is_its_hyperparameters(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, "one", 8)
        store._database._driver.execute('UPDATE studies SET configuration = \'{"objective": "f.py:f"}\'')
        store._database._driver.commit()
        best = store.best(study)[0]
    assert yaml.safe_load(answer("best", cwd=tmp_path)) == best.parameters


@needs("matplotlib")
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot_writes_a_picture_of_its_kind(digits_file: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    assert answer("plot", "history", "--store", str(digits_file), "-o", str(path)).strip() == str(path)
    beginning = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(beginning)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_results_of_10000_trials_come_within_a_second_without_heavy_imports(tmp_path: Path) -> None:
    path = tmp_path / "big.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=10_000, n_blocks=500, n_epochs=1, n_folds=1)
    assert len(answer("results", "--study", "digits", cwd=tmp_path).splitlines()) == 10_001
    code = (
        "import sys; from mpi_opt.cli.main import run; status = run(sys.argv[1:]);"
        f"assert not {HEAVY} & set(sys.modules), sys.modules; sys.exit(status)"
    )
    assert reference_s([sys.executable, "-c", code, "results", "--study", "digits"], tmp_path) < 1.0


def test_best_of_a_large_study_are_found_without_reading_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "a.db")
    with Store.open(path) as store:
        make_study(store, n_trials=300, n_blocks=50, n_epochs=1, n_folds=1)
    whole = Study.open(path, "digits")
    read: list[int] = []

    def counted(connection, study_id, query):
        found = read_trials(connection, study_id, query)
        read.append(len(found))
        return found

    read_trials = reading._trials
    monkeypatch.setattr(reading, "_trials", counted)
    for arguments in (["results", "--best", "3", "--format", "json"], ["results", "--trial", "7"]):
        read.clear()
        assert program([*arguments, "--store", path]) == 0
        assert sum(read) < 10
        printed = capsys.readouterr().out
        if "--best" in arguments:
            assert [trial["number"] for trial in json.loads(printed)] == [t.number for t in whole.ranked()[:3]]


def test_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        make_study(store, n_trials=3000, n_blocks=500, n_epochs=1, n_folds=1)
    command = [sys.executable, "-m", "mpi_opt", "results", "--study", "digits"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    with subprocess.Popen(command, **options) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("module", ["mpi_opt.cli", "mpi_learn.cli"])
def test_characters_that_the_terminal_does_not_have_are_replaced(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(output, encoding="latin-1"))
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main(["--version"])
    assert ended.value.code == 0
    print("0.25 ± 0.01 → best", flush=True)
    assert output.getvalue().splitlines()[-1] == "0.25 ± 0.01 \\u2192 best".encode("latin-1")


def test_best_in_the_folder_of_the_search_keeps_its_paths(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, n_trials=8)
        configuration = json.dumps(study.configuration | {"directory": str(tmp_path)})
        store._database._driver.execute("UPDATE studies SET configuration = ?", (configuration,))
        store._database._driver.commit()
    content = yaml.safe_load(answer("best", cwd=tmp_path))
    assert content["model"] == "digits.py:build_model" and content["data"]["train"] == ["digits.h5"]
