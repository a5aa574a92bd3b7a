"""A study driven from outside: which trials are given out, which outcomes are accepted, and which are refused."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_opt import Integer, Real, search
from mpi_opt.cli.main import run
from mpi_opt.core.search_space.space import Space
from mpi_opt.core.trial import trial_seed
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreLockedError
from mpi_opt.store.records import GivenBack, LeaseRecord
from mpi_opt.strategies import make_strategy
from mpi_opt.study.asking import ask_tell
from mpi_opt.study.study import Study
from tests.docs.pages import examples
from tests.mpi_opt.store.made_up import finish, start
from tests.timing import reference_s_of

SPACE = """
study: outside
store: sqlite:///outside.db
objective: external
direction: {direction}
space:
  x: {{type: real, low: -5.0, high: 10.0}}
  n: {{type: integer, low: 1, high: 8}}
search: {{strategy: {strategy}, trials: {trials}, seed: 3{more}}}
folds: {folds}
"""


@pytest.fixture
def write(tmp_path):
    def file(strategy="random", trials=10, direction="minimize", more="", folds=1):
        text = SPACE.format(strategy=strategy, trials=trials, direction=direction, more=more, folds=folds)
        (tmp_path / "space.yaml").write_text(text)

    return file


def study(folder) -> Study:
    return Study.open(f"sqlite:///{folder}/outside.db", "outside")


def test_ask_gives_trials_that_run_from_then_on(program, write, tmp_path):
    write()
    status, first, _ = program("ask", "space.yaml", "-k", "3")
    _, second, _ = program("ask", "space.yaml")
    assert status == 0
    assert [one["number"] for one in first + second] == [0, 1, 2, 3]
    assert first[2]["seed"] == trial_seed(3, 2)
    assert first[0]["study"] == "outside"
    assert [trial.parameters for trial in study(tmp_path).trials] == [one["parameters"] for one in first + second]
    assert {trial.state for trial in study(tmp_path).trials} == {"running"}
    assert {attempt.ranks for attempt in study(tmp_path).attempts()} == {"external"}


def test_asking_gives_the_trials_that_a_search_with_this_seed_gives(program, write):
    write(trials=6)
    asked = [program("ask", "space.yaml", "-k", "2")[1] for _ in range(3)]
    space = {"x": Real(-5.0, 10.0), "n": Integer(1, 8)}
    searched = search(lambda trial: 0.0, space=space, trials=6, strategy="random", seed=3, store="sqlite:///other.db")
    assert [one["parameters"] for some in asked for one in some] == [trial.parameters for trial in searched.trials]


def test_lines_are_one_proposal_each_and_none_when_there_is_none(program, write):
    write(trials=2)
    _, printed, _ = program("ask", "space.yaml", "-k", "5", "--lines")
    assert [json.loads(line)["number"] for line in printed.splitlines()] == [0, 1]
    assert program("ask", "space.yaml", "--lines") == (0, "", "")


def test_asking_for_more_than_is_left_gives_fewer_and_then_none(program, write):
    write(trials=4)
    assert len(program("ask", "space.yaml", "-k", "9")[1]) == 4
    assert program("ask", "space.yaml") == (0, [], "")
    assert len(program("ask", "space.yaml", "--trials", "6", "-k", "9")[1]) == 2


def test_value_is_recorded_with_its_uncertainty(program, write, tmp_path):
    write()
    program("ask", "space.yaml")
    status, said, _ = program("tell", "space.yaml", "--number", "0", "--value", "-0.5", "--uncertainty", "0.1")
    assert (status, said["told"], said["best"]["figure_of_merit"]) == (0, [0], -0.5)
    trial = study(tmp_path).trials[0]
    assert (trial.state, trial.figure_of_merit, trial.uncertainty) == ("complete", -0.5, 0.1)
    assert 0 <= trial.duration_s < 60
    assert [fold.figure_of_merit for fold in study(tmp_path).folds()] == [-0.5]


def test_failed_trial_is_recorded_with_its_reason(program, write, tmp_path):
    write()
    program("ask", "space.yaml")
    assert program("tell", "space.yaml", "--number", "0", "--failed", "site down")[0] == 0
    trial = study(tmp_path).trials[0]
    assert (trial.state, trial.figure_of_merit, trial.error) == ("failed", None, "site down")


@pytest.mark.parametrize(
    "stdin",
    [
        '[{"number": 0, "value": 2}, {"number": 1, "failed": "no"}]',
        '{"number": 0, "value": 2}\n\n{"number": 1, "failed": "no"}\n',
        '[{"number": 0, "value": 2, "parameters": {}, "seed": 1, "study": "outside"}, {"number": 1, "failed": "no"}]',
    ],
)
def test_results_come_as_json_on_standard_input(program, write, tmp_path, stdin):
    write()
    program("ask", "space.yaml", "-k", "2")
    assert program("tell", "space.yaml", stdin=stdin)[0] == 0
    assert [trial.state for trial in study(tmp_path).trials] == ["complete", "failed"]


def test_study_may_be_named_instead_of_its_file(program, write, tmp_path):
    write()
    program("ask", "space.yaml")
    assert program("tell", "--store", "outside.db", "--study", "outside", "--number", "0", "--value", "1")[0] == 0
    assert study(tmp_path).best.number == 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (["--number", "9", "--value", "1"], "", "there is no trial 9"),
        (["--number", "0", "--value", "1"], "", "trial 0 has already finished"),
        (["--number", "1", "--value", "nan"], "", "expected a finite number"),
        (["--number", "1", "--value", "low"], "", "valid number"),
        (["--number", "1"], "", 'expected exactly one of "value"'),
        (["--number", "1", "--value", "1", "--failed", "no"], "", 'expected exactly one of "value"'),
        (["--value", "1"], "", "the number of the trial is missing"),
        ([], '{"number": 1, "value"', "not JSON"),
        ([], '{"number": 1, "value": 0.1, "value": 0.2}', "the key 'value' occurs 2 times"),
        ([], '{"number": 1, "value": 0.1}\n{"number": 2, "number": 1, "value": 0.2}', "the key 'number' occurs 2"),
        ([], "", "not JSON"),
        ([], "[" * 100_000, "not JSON"),
        ([], f'{{"number": 1, "value": {"9" * 5000}}}', "not JSON"),
        ([], "7", "expected an object"),
        ([], '{"number": 1, "value": "0.1"}', "value: expected a number"),
        ([], '{"number": "1", "value": 0.1}', "number: expected"),
        ([], '{"number": 1, "valeu": 0.1}', "did you mean value?"),
        ([], '{"number": 1, "value": 0.1, "uncertainty": -1}', "uncertainty: expected 0 or more, found -1"),
        ([], '{"number": 1, "value": 0.1, "parameters": {"x": 9}}', "the result is of {'x': 9}, and trial 1 has {"),
        ([], '{"number": 1, "value": 0.1, "study": "another"}', "the result of trial 1 belongs to the study 'another'"),
        ([], '[{"number": 1, "value": 1}, {"number": 1, "value": 2}]', "trial 1 has two results"),
        ([], '[{"number": 1, "value": 1}, {"number": 9, "value": 2}]', "there is no trial 9"),
        (["--study", "outsied", "--number", "1", "--value", "1"], "", "did you mean outside?"),
        (["--store", "nowhere.db", "--number", "1", "--value", "1"], "", "there is no such file"),
    ],
)
def test_invalid_result_is_refused_in_one_message(program, write, tmp_path, arguments, stdin, complaint):
    write()
    program("ask", "space.yaml", "-k", "2")
    program("tell", "space.yaml", "--number", "0", "--value", "1")
    status, printed, complained = program("tell", "space.yaml", *arguments, stdin=stdin)
    assert status == 2
    assert complaint in complained
    assert "Traceback" not in complained
    assert printed == ""
    assert [trial.state for trial in study(tmp_path).trials] == ["complete", "running"]
    assert not (tmp_path / "nowhere.db").exists()


def test_result_of_a_study_of_another_store_is_refused(program, write, tmp_path):
    write()
    _, (asked,), _ = program("ask", "space.yaml")
    program("ask", "space.yaml", "--study", "other", "--store", "other.db")
    result = json.dumps(asked | {"value": 0.5})
    status, _, complained = program("tell", "--store", "other.db", stdin=result)
    assert status == 2
    assert "the result of trial 0 belongs to the study 'outside', not to 'other'" in complained
    assert "--study outside" in complained and "--store" in complained
    assert [trial.state for trial in Study.open("other.db", "other").trials] == ["running"]
    assert program("tell", "--store", "outside.db", stdin=result)[0] == 0
    assert study(tmp_path).trials[0].figure_of_merit == 0.5


def test_trials_of_a_workload_system_are_on_no_block_of_a_search(program, write, tmp_path):
    write()
    program("ask", "space.yaml", "-k", "2")
    with Store.open("sqlite:///outside.db") as store:
        store.start(store.study("outside").id, [start(2, {"x": 1.0, "n": 1})])
    program("tell", "space.yaml", "--number", "0", "--value", "1")
    assert [attempt.block for attempt in study(tmp_path).attempts()] == [-1, -1, 0]


@pytest.mark.parametrize("folds", [1, 3])
@pytest.mark.parametrize("is_running", [True, False])
def test_result_of_a_trial_of_a_search_is_refused_and_the_owner_named(program, write, tmp_path, folds, is_running):
    write(folds=folds)
    program("ask", "space.yaml")
    with Store.open("sqlite:///outside.db") as store:
        record = store.study("outside")
        store.start(record.id, [start(1, {"x": 1.0, "n": 1}), start(2, {"x": 2.0, "n": 2})])
        if is_running:
            owner = LeaseRecord("a", "node7", "node7", 4711, 1, "2026-01-02T03:04:05", "2026-01-02T03:04:05")
            store.leases.acquire(record.id, owner, lambda owner: True)
        for stdin in (
            '{"number": 1, "value": 5}',
            '{"number": 1, "failed": "no"}',
            '{"number": 1, "lost": "no"}',
            '[{"number": 0, "value": 5}, {"number": 1, "value": 5}]',
            '[{"number": 0, "lost": "no"}, {"number": 1, "value": 5}]',
        ):
            status, _, complained = program("tell", "space.yaml", stdin=stdin)
            assert status == 2
            assert "trial 1 belongs to" in complained and "block 0, ranks 1-3 on node1" in complained
            expected = "process 4711 on node7, since 2026-01-02 03:04:05" if is_running else "a search that has ended"
            assert expected in complained
            assert "mpi-opt results --study outside --trial 1" in complained
            assert [trial.state for trial in store.trials(record.id)] == ["running"] * 3
        store.finish(record.id, [finish(1, 0.5), finish(2, 0.5)])
    assert [trial.figure_of_merit for trial in study(tmp_path).trials] == [None, 0.5, 0.5]


def test_result_of_a_queued_trial_is_refused(program, write, tmp_path):
    write()
    program("ask", "space.yaml")
    program("tell", "space.yaml", "--number", "0", "--lost", "the site was down")
    status, _, complained = program("tell", "space.yaml", "--number", "0", "--value", "1")
    assert status == 2
    assert "trial 0 is queued" in complained and "mpi-opt ask" in complained
    assert study(tmp_path).trials[0].state == "queued"


def test_result_of_an_attempt_that_was_given_up_is_refused(program, write, tmp_path):
    write()
    _, (first,), _ = program("ask", "space.yaml")
    program("tell", "space.yaml", "--number", "0", "--lost", "the site was down")
    _, (second,), _ = program("ask", "space.yaml")
    assert first["attempt"] == 1
    assert second == first | {"attempt": 2}
    status, _, complained = program("tell", "space.yaml", stdin=json.dumps(first | {"value": 1.0}))
    assert status == 2
    assert "attempt 1 of trial 0 was given up; attempt 2 is running" in complained
    status, _, complained = program("tell", "space.yaml", stdin=json.dumps(second | {"attempt": 9, "value": 1.0}))
    assert status == 2
    assert "attempt 9 of trial 0 has not been given out yet; attempt 2 is running" in complained
    assert program("tell", "space.yaml", stdin=json.dumps(second | {"value": 2.0}))[0] == 0
    assert study(tmp_path).trials[0].figure_of_merit == 2.0


def test_trial_that_was_lost_twice_at_the_same_time_runs_only_once_more(program, write, tmp_path, monkeypatch):
    """Between reading and writing of one process, another one reports the same loss, and the trial starts again."""
    write()
    program("ask", "space.yaml")
    finish_of_store, others = Store.finish, [GivenBack(0, 1, "the site was down")]

    def finish_after_another(self, study_id, finished, given_back=()):
        if others:
            with Store.open("sqlite:///outside.db") as other:
                finish_of_store(other, study_id, [], [others.pop()])
                other.start(study_id, [start(0, attempt=2)])
        finish_of_store(self, study_id, finished, given_back)

    monkeypatch.setattr(Store, "finish", finish_after_another)
    status, _, complained = program(
        "tell", "space.yaml", stdin='{"number": 0, "attempt": 1, "lost": "the site was down"}'
    )
    assert status == 2
    assert "trial 0" in complained
    (trial,) = study(tmp_path).trials
    assert (trial.state, trial.attempts) == ("running", 2)


def test_text_that_is_not_utf_8_is_refused(program, write, monkeypatch, capsys):
    write()
    program("ask", "space.yaml")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    assert run(["tell", "space.yaml"]) == 2
    assert "the text is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["tell", "space.yaml", "--value", "1", "--number"], ["results", "--trial"], ["best", "--trial"]]
)
def test_number_that_no_trial_can_have_is_refused(program, write, arguments):
    write()
    program("ask", "space.yaml")
    status, _, complained = program(*arguments, str(10**20))
    assert status == 2
    assert "999999999" in complained


def test_one_of_two_simultaneous_results_of_a_trial_is_refused(program, write, tmp_path, monkeypatch):
    write()
    program("ask", "space.yaml", "-k", "2")
    finish_of_store, others = Store.finish, [0.25]

    def finish_after_another(self, study_id, finished, given_back=()):
        if others:  # another process is quicker, between this one's reading and writing
            with Store.open("sqlite:///outside.db") as other:
                finish_of_store(other, study_id, [finish(1, others.pop())])
        finish_of_store(self, study_id, finished, given_back)

    monkeypatch.setattr(Store, "finish", finish_after_another)
    stdin = '[{"number": 0, "lost": "no"}, {"number": 1, "value": 1}]'
    status, _, complained = program("tell", "space.yaml", stdin=stdin)
    assert status == 2
    assert "trial 1 has already finished: complete" in complained
    assert [(trial.state, trial.figure_of_merit) for trial in study(tmp_path).trials] == [
        ("running", None),
        ("complete", 0.25),
    ]


def test_study_begun_with_another_space_is_refused(program, write, tmp_path):
    write()
    program("ask", "space.yaml")
    text = (tmp_path / "space.yaml").read_text()
    (tmp_path / "space.yaml").write_text(text.replace("high: 8", "high: 9"))
    status, _, complained = program("ask", "space.yaml")
    assert status == 2
    assert "was created with another space" in complained


def test_store_in_memory_is_refused(program, write):
    write()
    status, _, complained = program("ask", "space.yaml", "--store", "sqlite://")
    assert status == 2
    assert "lost when this process ends" in complained


def test_target_ends_the_study_in_either_direction(program, write):
    write(direction="maximize", more=", target: 0.9")
    program("ask", "space.yaml", "-k", "2")
    program("tell", "space.yaml", "--number", "0", "--value", "0.5")
    assert len(program("ask", "space.yaml")[1]) == 1
    program("tell", "space.yaml", "--number", "1", "--value", "0.95")
    assert program("ask", "space.yaml") == (0, [], "")


def is_finished(program) -> tuple[int, str]:
    status, printed, _ = program("results", "--finished")
    return status, printed.strip()


def test_study_is_finished_when_all_its_trials_have_ended(program, write):
    write(trials=2)
    program("ask", "space.yaml", "-k", "2")
    assert is_finished(program) == (75, "outside: not finished; 2 running")
    program("tell", "space.yaml", stdin='[{"number": 0, "value": 0.25}, {"number": 1, "failed": "no"}]')
    assert is_finished(program) == (0, "outside: finished; 1 complete, 1 failed; best 0.25 (trial 0)")


@pytest.mark.parametrize(("direction", "values"), [("minimize", (2.0, 0.5)), ("maximize", (0.5, 2.0))])
def test_study_is_finished_when_its_target_is_reached(program, write, direction, values):
    write(direction=direction, more=", target: 1.0")
    program("ask", "space.yaml", "-k", "3")
    program("tell", "space.yaml", "--number", "0", "--value", str(values[0]))
    assert is_finished(program)[0] == 75
    program("tell", "space.yaml", "--number", "1", "--value", str(values[1]))
    assert is_finished(program) == (0, f"outside: finished; 2 complete, 1 running; best {values[1]:g} (trial 1)")


def test_target_of_several_figures_of_merit_is_reached_by_one_trial(program, write):
    write(direction="[minimize, maximize]", more=", target: [1.0, 0.9]")
    program("ask", "space.yaml", "-k", "3")
    program("tell", "space.yaml", stdin='[{"number": 0, "value": [0.1, 0.1]}, {"number": 1, "value": [2.0, 0.99]}]')
    assert is_finished(program)[0] == 75
    program("tell", "space.yaml", "--number", "2", "--value", "0.9", "--value", "0.95")
    assert is_finished(program)[0] == 0


def test_study_is_finished_when_its_strategy_has_no_more_trials(program, write):
    write(strategy="grid", more=", options: {points: 1}")
    program("ask", "space.yaml", "-k", "9")
    assert program("ask", "space.yaml")[1] == []
    assert is_finished(program)[0] == 75, "the trials that were given out still run"
    program("tell", "space.yaml", stdin=json.dumps([{"number": number, "value": number} for number in range(8)]))
    assert is_finished(program)[0] == 75  # only the strategy knows that there are no more
    assert [program("ask", "space.yaml")[1] for _ in range(2)] == [[], []]
    assert is_finished(program)[0] == 0
    assert [event.kind for event in study(Path()).events()] == ["study_finished"]


def test_study_with_more_trials_than_at_first_is_not_finished_before_these_have_ended(program, write):
    write(trials=1)
    program("ask", "space.yaml")
    program("tell", "space.yaml", "--number", "0", "--value", "1")
    assert is_finished(program)[0] == 0
    for number in (1, 2):
        assert program("ask", "space.yaml", "--trials", "3")[1][0]["number"] == number
        assert is_finished(program)[0] == 75
        program("tell", "space.yaml", "--number", str(number), "--value", "1")
        assert is_finished(program)[0] == 75  # only `ask` knows the new number of trials
    assert program("ask", "space.yaml", "--trials", "3")[1] == []
    assert is_finished(program)[0] == 0


def test_trials_that_a_search_left_are_finished_by_a_workload_system(program, write):
    write(trials=2)
    program("ask", "space.yaml", "-k", "2")
    with Store.open("sqlite:///outside.db") as store:
        store.event(store.study("outside").id, "search_stopped", "the time limit is reached")
    program("tell", "space.yaml", stdin='[{"number": 0, "value": 1}, {"number": 1, "value": 2}]')
    assert program("ask", "space.yaml")[1] == []
    assert is_finished(program)[0] == 0


def test_strategy_receives_results_of_tell_as_costs(program, write, tmp_path):
    write(strategy="evolutionary", trials=60, direction="maximize")
    while asked := program("ask", "space.yaml", "-k", "10")[1]:
        results = [one | {"value": -((one["parameters"]["x"] - 2.0) ** 2)} for one in asked]
        program("tell", "space.yaml", stdin=json.dumps(results))
    values = [trial.figure_of_merit for trial in study(tmp_path).trials]
    assert len(values) == 60
    assert sum(values[40:]) / 20 > sum(values[:20]) / 20


@pytest.mark.parametrize("strategy", ["bayesian", "halving"])
def test_outcomes_count_while_many_trials_are_running(program, write, strategy):
    """Each call of `ask` is a process of its own, so that no proposal can be prepared in the background."""
    write(strategy=strategy, trials=80)
    space = Space({"x": Real(-5.0, 10.0), "n": Integer(1, 8)})
    living = make_strategy(strategy, space, seed=3, options={"await_refit_up_to": 99})
    _, asked, _ = program("ask", "space.yaml", "-k", "50")
    proposals = living.ask(50)
    values = [(one["parameters"]["x"] - 2) ** 2 + one["parameters"]["n"] for one in asked[:25]]
    for proposal, value in zip(proposals, values, strict=False):
        living.tell(proposal, value)
    results = json.dumps([{"number": number, "value": value} for number, value in enumerate(values)])
    assert program("tell", "space.yaml", stdin=results)[0] == 0
    _, asked, _ = program("ask", "space.yaml", "-k", "4")
    assert [one["parameters"] for one in asked] == [proposal.parameters for proposal in living.ask(4)]


def test_trial_left_by_a_search_is_given_out_again(program, write, tmp_path):
    write()
    program("ask", "space.yaml", "-k", "2")
    with Store.open("sqlite:///outside.db") as store:
        store.requeue(store.study("outside").id, [1], "the search ended")
    _, asked, _ = program("ask", "space.yaml", "-k", "2")
    assert [one["number"] for one in asked] == [1, 2]
    assert [trial.attempts for trial in study(tmp_path).trials] == [1, 2, 1]


def test_search_uses_results_of_tell_and_does_not_run_trials_of_a_workload_system(program, write, tmp_path):
    write(trials=4)
    (tmp_path / "f.py").write_text("def f(trial):\n    return 7.0\n")
    text = (tmp_path / "space.yaml").read_text().replace("external", "f.py:f")
    (tmp_path / "space.yaml").write_text(text)
    program("ask", "space.yaml", "-k", "2")
    program("tell", "space.yaml", "--number", "1", "--value", "1")
    done = subprocess.run(
        [sys.executable, "-m", "mpi_opt", "search", "space.yaml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 75, done.stderr  # trial 0 has not ended
    assert [trial.figure_of_merit for trial in study(tmp_path).trials] == [None, 1.0, 7.0, 7.0]
    assert study(tmp_path).trials[0].state == "running"


def test_search_of_an_external_study_is_refused(program, write):
    write()
    status, _, complained = program("search", "space.yaml")
    assert status == 2
    assert "mpi-opt ask" in complained
    assert program("check", "space.yaml")[0] == 0


ASKING = """
import json, sys
from pathlib import Path
from mpi_opt.configuration.read_study import read_study
from mpi_opt.configuration.plan import Plan
from mpi_opt.study.asking.ask_tell import ExternalResult, ask, tell
from mpi_opt.study.study import Study
configuration = read_study(Path("space.yaml"))
for _ in range(5):
    asked = ask(Plan(configuration, Path()), 2)
    for one in asked:
        print(one["number"])
    results = [ExternalResult(number=one["number"], value=float(one["number"])) for one in asked]
    tell(configuration.store, "outside", results)
"""


def test_processes_that_ask_at_once_never_get_the_same_trial(write, tmp_path):
    write(trials=30)
    command = [sys.executable, "-c", ASKING]
    processes = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    numbers = [int(line) for process in processes for line in process.communicate(timeout=60)[0].split()]
    assert [process.returncode for process in processes] == [0] * 4
    assert sorted(numbers) == list(range(30))
    assert [trial.figure_of_merit for trial in study(tmp_path).trials] == [float(number) for number in range(30)]


@pytest.mark.parametrize("command", ["ask", "tell"])
def test_neither_loads_mpi_nor_a_framework(command, write, tmp_path):
    write()
    arguments = {"ask": ["ask", "space.yaml"], "tell": ["tell", "space.yaml", "--number", "0", "--value", "1"]}
    code = (
        f"import sys; from mpi_opt.cli.main import run; assert run({arguments['ask']}) == 0;"
        f"assert run({arguments[command]}) == 0;"
        "assert not {'mpi4py', 'tensorflow', 'keras', 'torch', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_result_is_recorded_once_if_the_study_cannot_be_read_afterwards(program, write, tmp_path, monkeypatch):
    """Another program locks the database between the two."""
    write()
    program("ask", "space.yaml")
    calls, read_record = [], ask_tell.read_record

    def locked_once(store, name):
        calls.append(name)
        if len(calls) == 2:
            raise StoreLockedError("locked")
        return read_record(store, name)

    monkeypatch.setattr(ask_tell, "read_record", locked_once)
    status, said, complained = program("tell", "space.yaml", "--number", "0", "--value", "2")
    assert (status, complained) == (0, "")
    assert said["best"]["figure_of_merit"] == 2
    assert len(calls) == 3


def test_front_of_a_summary_is_that_of_the_study(program, write, tmp_path):
    text = SPACE.format(strategy="random", trials=10, direction="minimize", more="", folds=1)
    text = text.replace("direction: minimize", "figure_of_merit: [a, b]\ndirection: [minimize, maximize]")
    (tmp_path / "space.yaml").write_text(text)
    program("ask", "space.yaml", "-k", "4")
    values = [[1, 1], [3, 5], [2, 0], [0, 0]]
    results = json.dumps([{"number": number, "value": value} for number, value in enumerate(values)])
    _, said, _ = program("tell", "space.yaml", stdin=results)
    assert said["pareto"] == [trial.number for trial in study(tmp_path).pareto()] == [3, 0, 1]
    assert study(tmp_path).best.number == 3


def test_line_of_json_may_contain_other_line_separators(program, write):
    write()
    program("ask", "space.yaml", "-k", "2")
    stdin = '{"number": 0, "failed": "a\u2028b"}\n{"number": 1, "value": 1}\n'
    status, said, _ = program("tell", "space.yaml", stdin=stdin)
    assert (status, said["told"]) == (0, [0, 1])


def test_ask_answers_quickly(program, write):
    write(trials=1000)
    program("ask", "space.yaml", "-k", "500")
    asked = []
    assert reference_s_of(lambda: asked.extend(program("ask", "space.yaml")[1])) < 0.5
    assert len(asked) == 1


def test_loop_of_the_documentation_runs_a_study(tmp_path):
    page = {one.title: one.code for one in examples(page="workload-systems.md") if one.title}
    for name, code in page.items():
        (tmp_path / name).write_text(code.replace("trials: 12", "trials: 6"))
    (tmp_path / "mpi-opt").write_text(f'#!/bin/sh\nexec {sys.executable} -m mpi_opt "$@"\n')
    (tmp_path / "mpi-opt").chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "loop.sh"], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    ended = Study.open(f"sqlite:///{tmp_path}/outside.db", "outside")
    assert ended.record.counts == {"complete": 6}
    assert len(page["loop.sh"].splitlines()[1:]) <= 10  # without its name
