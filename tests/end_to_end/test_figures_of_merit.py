"""Searches with several figures of merit, with other selections over the folds, and with an earlier study."""

from __future__ import annotations

import json
import statistics

import pytest

from mpi_opt.cli.main import run
from mpi_opt.study.study import Study
from tests.in_process import in_process
from tests.optional_packages import needs
from tests.world import in_world

TWO = {"figure_of_merit": ["accuracy", "cost"], "direction": ["maximize", "minimize"]}


def search(path, tmp_path, n_ranks=1, *options):
    if n_ranks == 1:
        return in_process("search", str(path), *options, cwd=tmp_path)
    return in_world(n_ranks, "-m", "mpi_opt", "search", str(path), *options, cwd=tmp_path)


def front_of(rows):
    """The numbers of the trials that no other trial surpasses in one figure without being worse in the other."""
    return {
        number
        for number, accuracy, cost in rows
        if not any(a >= accuracy and c <= cost and (a > accuracy or c < cost) for _, a, c in rows)
    }


@pytest.mark.mpi
@pytest.mark.parametrize(("n_ranks", "strategy"), [(4, "evolutionary"), (1, "bayesian")])
def test_a_search_for_a_pareto_front_stores_it_and_can_be_continued(n_ranks, strategy, space_file, query, tmp_path):
    wanted = {"strategy": strategy, "trials": 14, "seed": 3, "options": {"initial_points": 6}}
    path = space_file("accuracy_and_cost", **TWO, folds=3, search=wanted)
    done = search(path, tmp_path, n_ranks, "--trials", "8")
    assert done.returncode == 0, done.stderr
    assert "the Pareto front:" in done.stdout
    assert search(path, tmp_path, n_ranks).returncode == 0
    rows = query("SELECT number, accuracy, cost FROM study_test WHERE state = 'complete'")
    assert len(rows) == 14
    assert {number for (number,) in query("SELECT number FROM study_test WHERE pareto = 1")} == front_of(rows)
    for x, accuracy, cost, spread in query("SELECT x, accuracy, cost, accuracy_uncertainty FROM study_test"):
        assert (accuracy, cost) == (pytest.approx(1 - (x - 1) ** 2), pytest.approx(x))
        assert spread == pytest.approx(statistics.stdev([-0.1, 0.0, 0.1]))
    assert query("SELECT count(*) FROM fold_figures_of_merit") == [(14 * 3 * 2,)]


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1), ("maximize", -1)])
def test_selection_determines_the_figure_of_merit(direction, sign, space_file, query, tmp_path):
    path = space_file("folded", folds=3, direction=direction, selection="mean+std")
    assert search(path, tmp_path).returncode == 0
    folds = [value for (value,) in query("SELECT figure_of_merit FROM folds WHERE trial_id % 1000000000 = 0")]
    expected = statistics.fmean(folds) + sign * statistics.stdev(folds)
    ((merit, spread, selection),) = query(
        "SELECT figure_of_merit, uncertainty, selection FROM trials, studies WHERE number = 0"
    )
    assert (merit, spread, selection) == (pytest.approx(expected), pytest.approx(statistics.stdev(folds)), "mean+std")


def test_a_target_of_two_figures_ends_the_search(space_file, query, tmp_path):
    wanted = {"strategy": "random", "trials": 200, "seed": 3, "target": [0.8, 0.9]}
    assert search(space_file("accuracy_and_cost", **TWO, search=wanted), tmp_path).returncode == 0
    reached = query("SELECT number FROM study_test WHERE accuracy >= 0.8 AND cost <= 0.9")
    assert reached == query("SELECT max(number) FROM study_test")


def test_an_objective_that_omits_a_figure_fails_its_trial_with_a_message(space_file, tmp_path):
    done = search(space_file("one_of_two", **TWO), tmp_path)
    assert done.returncode == 1
    assert "must return 2 numbers (accuracy, cost), not 1.0" in done.stderr


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"figure_of_merit": ["a", "b"]}, "expected a direction for each of a, b; found 1"),
        (TWO | {"search": {"target": 0.5}}, "expected a target for each of accuracy, cost; found 1"),
        (TWO | {"search": {"strategy": "halving", "options": {"resume": False}}}, "a trial reports one number"),
        (TWO | {"folds": {"number": 3, "stop_early": True}}, "the mean of one figure of merit"),
        ({"selection": "best"}, "selection"),
    ],
)
def test_invalid_options_are_refused_at_the_start(sections, complaint, space_file, capsys):
    assert run(["check", str(space_file("accuracy_and_cost", **sections))]) == 2
    assert complaint in capsys.readouterr().err


@needs("matplotlib")
def test_front_is_printed_drawn_and_reported(space_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert search(space_file("accuracy_and_cost", **TWO), tmp_path).returncode == 0
    study = Study.open("sqlite:///test.db", "test")
    front = [trial.number for trial in study.pareto()]
    assert study.best.number == front[0]
    assert study.best.figures_of_merit["accuracy"] == max(t.figures_of_merit["accuracy"] for t in study.trials)
    assert run(["results", "--study", "test", "--pareto", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["number"] for one in printed] == front
    assert set(printed[0]["figures_of_merit"]) == {"accuracy", "cost"}
    assert run(["results", "--study", "test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "*" in line] == [str(number) for number in front]
    assert run(["results", "--study", "test", "--trial", str(front[0])]) == 0
    assert "Pareto front  yes" in capsys.readouterr().out
    assert run(["best", "--study", "test"]) == 0
    assert f"trial {front[0]}: accuracy" in capsys.readouterr().out
    assert run(["plot", "pareto", "-o", "front.png"]) == 0
    assert run(["plot", "pareto", "--x", "speed"]) == 2
    assert "is not a figure of merit of this study" in capsys.readouterr().err
    assert run(["report", "-o", "report.html"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "Pareto front of accuracy (maximize), cost (minimize)" in page
    assert '"front":{"names":["accuracy","cost"]' in page


def test_external_trials_are_reported_with_two_figures(space_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = space_file("accuracy_and_cost", **TWO).read_text().split("objective:")
    (tmp_path / "space.yaml").write_text("objective: external" + content[1][content[1].index("\n") :] + content[0])
    assert run(["ask", "space.yaml", "-k", "3"]) == 0
    assert run(["tell", "space.yaml", "--number", "0", "--value", "0.9", "--value", "2"]) == 0
    monkeypatch.setattr(
        "sys.stdin", _Input('{"number": 1, "value": {"cost": 1, "accuracy": 0.8}, "uncertainty": [0, 1]}')
    )
    capsys.readouterr()
    assert run(["tell", "space.yaml"]) == 0
    assert json.loads(capsys.readouterr().out)["pareto"] == [0, 1]
    assert run(["tell", "space.yaml", "--number", "2", "--value", "0.9"]) == 2
    assert "expected 2 numbers: accuracy, cost; found 0.9" in capsys.readouterr().err
    assert run(["ask", "space.yaml"]) == 0


class _Input:
    def __init__(self, text):
        self.read, self.isatty = lambda: text, lambda: False


def test_a_search_begins_with_an_earlier_study(space_file, query, tmp_path):
    assert search(space_file("parabola", study="before"), tmp_path).returncode == 0
    wanted = {"strategy": "bayesian", "trials": 12, "seed": 9, "transfer": {"study": "before", "best": 2}}
    assert search(space_file("parabola", study="after", search=wanted), tmp_path).returncode == 0
    best = query("SELECT x FROM study_before ORDER BY figure_of_merit LIMIT 2")
    assert query("SELECT x FROM study_after ORDER BY number LIMIT 2") == best
    assert query("SELECT count(*) FROM transferred") == [(12,)]
