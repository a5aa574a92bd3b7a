from __future__ import annotations

import pytest

from mpi_opt.coordinator import Coordinator, Rules
from mpi_opt.errors import SearchFailed, UserError
from mpi_opt.messages import Ready, Report
from mpi_opt.strategies.strategy import Decision
from mpi_opt.trial import Failed, Outcome, TrialRecord
from tests.mpi_opt.fakes import ListedStore, ListedStrategy, ScriptedLink


def squares(assignment) -> Outcome:
    return Outcome(assignment.number, "complete", float(assignment.parameters["x"]) ** 2, None, 1.0)


def failing(assignment) -> Outcome:
    return Outcome(assignment.number, "failed", None, None, 1.0, error="ValueError: no")


def search(link, *, trials=6, strategy=None, store=None, folds=1, **rules):
    strategy, store = strategy or ListedStrategy(), store or ListedStore()
    coordinator = Coordinator(link, strategy, store, 1, Rules(trials, **rules), folds=folds)
    coordinator.run()
    return strategy, store


def test_each_trial_is_run_once_recorded_and_told():
    strategy, store = search(link := ScriptedLink(3, squares), trials=7)
    assert sorted(strategy.told) == [(n, float(n * n)) for n in range(7)]
    assert [start.number for start in store.started] == list(range(7))
    assert sorted(finish.outcome.number for finish in store.finished) == list(range(7))
    assert link.is_dismissed


def test_a_block_that_finishes_gets_its_next_trial_whatever_the_others_do():
    link = ScriptedLink(2, squares, order=lambda numbers: len(numbers) - 1)  # trial 0 ends last of all
    search(link, trials=5)
    assert link.log.index("start 4") < link.log.index("end 0")


def test_a_result_is_committed_before_its_block_gets_the_next_trial():
    link = ScriptedLink(1, squares)
    store = ListedStore()
    store.finish = lambda study, finished: link.log.extend(f"commit {f.outcome.number}" for f in finished)
    search(link, trials=3, store=store)
    assert link.log == [f"{what} {n}" for n in range(3) for what in ("start", "end", "commit")]


def test_maximising_tells_the_strategy_negated_values_and_stores_the_users():
    strategy, store = search(ScriptedLink(1, squares), trials=3, maximize=True)
    assert [value for _, value in strategy.told] == [0, -1, -4]
    assert [finish.outcome.figure_of_merit for finish in store.finished] == [0, 1, 4]


@pytest.mark.parametrize(("maximize", "target", "n_trials"), [(True, 9.0, 4), (False, 0.0, 1)])
def test_a_reached_target_ends_the_search(maximize, target, n_trials):
    _, store = search(ScriptedLink(1, squares), trials=50, maximize=maximize, target=target)
    assert len(store.finished) == n_trials


def test_a_reached_target_stops_the_trials_that_still_run():
    link = ScriptedLink(3, squares)
    search(link, trials=50, target=0.0)
    assert link.stopped == [1, 2]


def test_a_failed_trial_is_told_and_the_search_goes_on():
    strategy, _ = search(ScriptedLink(2, lambda a: failing(a) if a.number % 2 else squares(a)), trials=6)
    outcomes = dict(strategy.told)
    assert outcomes[1] == Failed("ValueError: no")
    assert outcomes[4] == 16.0


def test_a_search_whose_first_trials_all_fail_gives_up_with_the_reason():
    with pytest.raises(SearchFailed, match="ValueError: no"):
        search(link := ScriptedLink(2, failing), trials=500)
    assert link.is_dismissed


def test_a_strategy_that_has_no_more_ends_the_search():
    _, store = search(ScriptedLink(4, squares), trials=100, strategy=ListedStrategy(n=5))
    assert len(store.finished) == 5


def test_what_the_user_must_mend_ends_the_search_before_a_trial():
    link, store = ScriptedLink(2, squares), ListedStore()
    link.waiting = [(1, Ready(0, "host", UserError("no data")))]
    with pytest.raises(UserError, match="no data"):
        search(link, store=store)
    assert link.is_dismissed
    assert not store.started


def test_a_continued_study_keeps_its_trials_and_runs_first_what_was_running():
    records = [
        TrialRecord(0, "complete", {"x": 0}, 4.0),
        TrialRecord(1, "running", {"x": 1}, attempts=1),
        TrialRecord(2, "failed", {"x": 2}, error="lost"),
        TrialRecord(3, "queued", {"x": 3}, attempts=2),
    ]
    strategy, store = search(ScriptedLink(1, squares), trials=6, store=ListedStore(records))
    assert [(start.number, start.attempt) for start in store.started] == [(1, 2), (3, 3), (4, 1), (5, 1)]
    assert store.requeued == [1]
    assert strategy.told[:2] == [(0, 4.0), (2, Failed("lost"))]
    assert "study_resumed" in store.events


def test_a_finished_study_is_left_as_it_is():
    records = [TrialRecord(n, "complete", {"x": n}, 1.0) for n in range(6)]
    _, store = search(ScriptedLink(2, squares), trials=6, store=ListedStore(records))
    assert not store.started


def test_a_pruned_trial_is_told_to_stop_once_all_its_folds_have_reported():
    class Pruning(ListedStrategy):
        seen: list[tuple[int, float]] = []

        def report(self, proposal, step, value):
            self.seen.append((step, value))
            return Decision.STOP

    strategy, link = Pruning(), ScriptedLink(1, squares)
    link.blocks = [range(1, 5)]
    coordinator = Coordinator(link, strategy, ListedStore(), 1, Rules(1), folds=2)
    coordinator._take_up()
    coordinator._note(1, Ready(0, "host"))
    coordinator._dispatch()
    coordinator.take_report(1, Report(0, 0, 3, 1.0))
    assert not strategy.seen
    coordinator.take_report(3, Report(0, 1, 3, 2.0))
    assert strategy.seen == [(3, 1.5)]
    assert link.stopped == [0]
