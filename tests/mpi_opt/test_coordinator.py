from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mpi_learn.errors import TrainingError
from mpi_learn.job.stop_request import StopRequest
from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.coordinator import Coordinator
from mpi_opt.coordinator.retrying_store import RetryingStore
from mpi_opt.coordinator.search_settings import SearchSettings
from mpi_opt.coordinator.stop_condition import StopCondition
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.folds.fold_stopping import CompleteTrials
from mpi_opt.core.limits import SearchLimits
from mpi_opt.core.search_space.space import Real, Space
from mpi_opt.core.trial import Failed, Outcome, TrialRecord
from mpi_opt.errors import MPILearnError, RanksLost, SearchFailed, UserError
from mpi_opt.messages.messages import Abandoned, Assignment, Broken, Disband, Join, Lost, Ready, Report, Stop
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreConflictError, StoreFullError, StudyOwnedError
from mpi_opt.store.records import AttemptRecord
from mpi_opt.strategies.strategy import Decision
from mpi_opt.study.progress import Progress
from mpi_opt.study.reading import EXTERNAL_BLOCK, EXTERNAL_RANKS
from tests.mpi_opt.fakes import ListedStore, ListedStrategy, ScriptedLink
from tests.mpi_opt.outcomes import a_fold, an_outcome, one_figure


def squares(assignment) -> Outcome:
    return an_outcome(assignment.number, "complete", float(assignment.proposal.parameters["x"]) ** 2, None, 1.0)


def squares_of(assignment, power) -> Outcome:
    return an_outcome(assignment.number, "complete", float(assignment.proposal.parameters["x"]) ** power, None, 1.0)


def failing(assignment) -> Outcome:
    return an_outcome(assignment.number, "failed", None, None, 1.0, error="ValueError: no")


def run(link, store, stopping, **limits):
    """A search on one block of one rank."""
    pool = BlockPool(link, BlockMembership.of(BlockLayout(2, 1)))
    Coordinator(pool, ListedStrategy(), store, 1, SearchSettings(SearchLimits(**limits), stop_condition=stopping)).run()


def search(link, *, blocks=1, trials=6, strategy=None, store=None, time_limit_s=None, was_finished=False, **limits):
    strategy, store = strategy or ListedStrategy(), store or ListedStore()
    pool = BlockPool(link, BlockMembership.of(BlockLayout(blocks + 1, 1)))
    settings = SearchSettings(
        SearchLimits(trials, **limits),
        stop_condition=StopCondition(time_limit_s=time_limit_s),
        was_finished=was_finished,
    )
    Coordinator(pool, strategy, store, 1, settings).run()
    return strategy, store


def test_the_checkpoints_of_long_and_repeated_trials_are_removed_when_they_have_ended():
    discarded: list[int] = []
    pool = BlockPool(ScriptedLink(after_an_hour), BlockMembership.of(BlockLayout(2, 1)))
    settings = SearchSettings(SearchLimits(4), discard=lambda study, numbers: discarded.extend(numbers))
    store = ListedStore()
    Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert discarded == [1, 3]


def test_blocks_that_report_the_same_mistake_at_once_are_dismissed_and_not_killed():
    link = ScriptedLink(squares, error=UserError("no such package"))
    with pytest.raises(UserError, match="no such package"):
        search(link, blocks=3)
    assert (link.called, link.dismissed) == ([], {1, 2, 3})


def test_a_library_is_loaded_while_the_blocks_form():
    link = ScriptedLink(squares)
    settings = SearchSettings(SearchLimits(2), load_library=lambda: link.log.append(f"load after {link.joined}"))
    Coordinator(
        BlockPool(link, BlockMembership.of(BlockLayout(3, 1))), ListedStrategy(), ListedStore(), 1, settings
    ).run()
    assert link.log[0] == "load after [0, 1]"
    assert [line.split()[0] for line in link.log].count("load") == 1


def after_an_hour(assignment) -> Outcome:
    """Trials 1 and 3 take an hour."""
    return replace(squares(assignment), duration_s=3600.0 if assignment.number % 2 else 1.0)


def test_each_trial_is_run_once_recorded_and_passed_to_the_strategy():
    strategy, store = search(link := ScriptedLink(squares), trials=7, blocks=3)
    assert sorted(strategy.told) == [(n, float(n * n)) for n in range(7)]
    assert [start.proposal.number for start in store.started] == list(range(7))
    assert sorted(finish.outcome.number for finish in store.finished) == list(range(7))
    assert link.dismissed


def test_a_block_that_finishes_gets_its_next_trial_whatever_the_others_do():
    link = ScriptedLink(squares, order=lambda numbers: len(numbers) - 1)  # trial 0 ends last of all
    search(link, trials=5, blocks=2)
    assert link.log.index("start 4") < link.log.index("end 0")


class Affording(ListedStrategy):
    """Records what it is told to afford; a model takes the time `model_s`."""

    def __init__(self, model_s):
        super().__init__()
        self.model_s, self.afforded = model_s, []

    def afford(self, n_models):
        self.afforded.append(n_models)

    def ask(self, count):
        time.sleep(self.model_s * bool(self.afforded[-1]))
        return super().ask(count)


def test_the_strategy_knows_how_many_models_the_blocks_can_wait_for():
    """Trials take 1 s by the clock of their blocks."""
    cheap, costly = Affording(0.0), Affording(0.2)
    for strategy in (cheap, costly):
        search(ScriptedLink(squares), trials=90, blocks=20, strategy=strategy)
    assert cheap.afforded[0] == 0, "nothing is known of the trials yet"
    assert all(cheap.afforded[10:])
    assert sum(map(bool, costly.afforded)) < 0.3 * len(costly.afforded)


class Choosing(ListedStrategy):
    """Has chosen something else from the fourth trial on."""

    @property
    def choice(self):
        return "the second: there are results" if len(self.told) > 3 else "the first: nothing is known"


def test_a_choice_of_the_strategy_is_recorded_whenever_it_changes():
    _, store = search(ScriptedLink(squares), trials=8, strategy=Choosing())
    chosen = [detail for kind, detail in zip(store.events, store.details, strict=True) if kind == "strategy_chosen"]
    assert chosen == ["the first: nothing is known", "the second: there are results"]


def test_a_result_is_committed_before_its_block_gets_the_next_trial():
    link = ScriptedLink(squares)
    store = ListedStore()
    store.finish = lambda study, finished: link.log.extend(f"commit {f.outcome.number}" for f in finished)
    search(link, trials=3, store=store)
    assert link.log == [f"{what} {n}" for n in range(3) for what in ("start", "end", "commit")]


def test_one_transaction_records_an_outcome_and_the_start_of_the_next_trial():
    recorded = []

    class Recording(ListedStore):
        def record(self, study_id, ended, started=()):
            recorded.append(([one.number for one in ended], [one.number for one in started]))
            super().record(study_id, ended, started)

    search(ScriptedLink(squares), trials=3, store=Recording())
    assert recorded == [([], [0]), ([0], [1]), ([1], [2]), ([2], [])]


def test_outcomes_do_not_wait_for_a_strategy_that_needs_long_for_its_proposals():
    """The process may be killed meanwhile."""
    recorded = []

    class Slow(ListedStrategy):
        def ask(self, count):
            recorded.append("ask")
            time.sleep(0.15)
            return super().ask(count)

    class Recording(ListedStore):
        def record(self, study_id, ended, started=()):
            recorded.append([one.number for one in ended])
            super().record(study_id, ended, started)

    search(ScriptedLink(squares), trials=3, strategy=Slow(), store=Recording())
    assert recorded == ["ask", [], [0], "ask", [], [1], "ask", [], [2]]


def test_the_next_trial_depends_on_the_outcome_that_is_recorded_with_its_start():
    class Doubling(ListedStrategy):
        def ask(self, count):
            (proposal,) = super().ask(count)
            return [replace(proposal, parameters={"x": 2 * self.told[-1][1] if self.told else 1})]

    _, store = search(ScriptedLink(lambda one: squares_of(one, 1)), trials=4, strategy=Doubling())
    assert [start.proposal.parameters["x"] for start in store.started] == [1, 2, 4, 8]


class Killed(BaseException):
    """Nothing that the coordinator does afterwards reaches the store, as if its process had been killed."""


@pytest.mark.parametrize(("moment", "states"), [("before", ["running"]), ("after", ["complete", "running"])])
def test_a_search_that_is_killed_around_a_commit_loses_no_committed_outcome(moment, states, tmp_path):
    """Before the commit, the trial runs again. After it, the next trial has not been sent, and runs again as well."""
    link = ScriptedLink(squares)

    def record(*arguments, record=Store.record):
        if moment == "before" and link.log == ["start 0", "end 0"]:
            raise Killed
        record(store, *arguments)

    def send(rank, message, send=link.send):
        if moment == "after" and isinstance(message, Assignment) and message.number == 1:
            raise Killed
        send(rank, message)

    with Store.open(str(tmp_path / "killed.db")) as store:
        space = Space({"x": Real(0, 9)})
        study = store.create_study("killed", strategy="random", seed=1, configuration={}, space=space)
        store.record, link.send = record, send
        pool = BlockPool(link, BlockMembership.of(BlockLayout(2, 1)))
        with pytest.raises(Killed):
            Coordinator(pool, ListedStrategy(), store, study.id, SearchSettings(SearchLimits(3))).run()
        assert link.log == ["start 0", "end 0"]
        assert [trial.state for trial in store.trials(study.id)] == states
        del store.record
        pool = BlockPool(ScriptedLink(squares), BlockMembership.of(BlockLayout(2, 1)))
        Coordinator(pool, ListedStrategy(), store, study.id, SearchSettings(SearchLimits(3))).run()
        trials = store.trials(study.id)
        assert [(trial.state, trial.figure_of_merit) for trial in trials] == [("complete", n * n) for n in range(3)]
        assert [trial.attempts for trial in trials] == [2 - (state == "complete") for state in states] + [1] * (
            3 - len(states)
        )


def test_maximising_passes_negated_values_to_the_strategy_and_stores_the_users():
    strategy, store = search(ScriptedLink(squares), trials=3, figures_of_merit=FiguresOfMerit(directions=("maximize",)))
    assert [value for _, value in strategy.told] == [0, -1, -4]
    assert [finish.outcome.figure_of_merit for finish in store.finished] == [0, 1, 4]


@pytest.mark.parametrize(("direction", "target", "n_trials"), [("maximize", (9.0,), 4), ("minimize", (0.0,), 1)])
def test_a_reached_target_ends_the_search(direction, target, n_trials):
    figures = FiguresOfMerit(directions=(direction,))
    _, store = search(ScriptedLink(squares), trials=50, figures_of_merit=figures, target=target)
    assert len(store.finished) == n_trials


def test_a_reached_target_stops_the_trials_that_still_run():
    link = ScriptedLink(squares)
    search(link, trials=50, target=(0.0,), blocks=3)
    assert link.stopped == [(2, 1), (3, 2)]


def test_a_stop_goes_to_the_first_rank_of_each_fold_also_before_it_has_reported():
    class Reaching(ScriptedLink):
        """The second block, ranks 4 to 6, reaches the target while the first one runs."""

        def receive(self, timeout_s, is_interrupted):
            self.order = lambda numbers: -1
            return super().receive(timeout_s, is_interrupted)

    link = Reaching(lambda assignment: an_outcome(assignment.number, "complete", 0.0, None, 1.0))
    pool = BlockPool(link, BlockMembership.of(BlockLayout(11, 5, n_folds=2)))
    limits = SearchLimits(9, target=(0.0,))
    Coordinator(pool, ListedStrategy(), ListedStore(), 1, SearchSettings(limits, n_folds=2)).run()
    assert link.stopped == [(1, 0), (4, 0)]  # folds of ranks 1 to 3, and of ranks 4 and 5


def test_a_target_that_an_earlier_search_reached_ends_the_search_before_a_trial():
    store = ListedStore([TrialRecord(0, "complete", {"x": 0}, one_figure(0.0))])
    search(ScriptedLink(squares), trials=50, store=store, target=(0.0,))
    assert not store.started
    assert store.events[-1] == "study_finished"


def test_a_failed_trial_is_reported_and_the_search_continues():
    strategy, _ = search(ScriptedLink(lambda a: failing(a) if a.number % 2 else squares(a)), trials=6, blocks=2)
    outcomes = dict(strategy.told)
    assert outcomes[1] == Failed("ValueError: no")
    assert outcomes[4] == 16.0


def test_a_search_whose_first_trials_all_fail_gives_up_with_the_reason():
    with pytest.raises(SearchFailed, match="ValueError: no"):
        search(link := ScriptedLink(failing), trials=500, blocks=2)
    assert link.dismissed


@pytest.mark.parametrize("blocks", [2, 64])
def test_a_search_whose_first_trials_fail_fast_waits_for_those_that_run(blocks):
    def run(assignment):
        is_slow = assignment.number < blocks - 1 or assignment.number > blocks + 20
        return squares(assignment) if is_slow else failing(assignment)

    link = ScriptedLink(run, order=lambda numbers: len(numbers) - 1)  # the trials that start first end last
    _, store = search(link, trials=blocks + 30, blocks=blocks)
    assert len(store.finished) == blocks + 30
    n_failed_before = link.log.index(f"end {blocks - 2}") - link.log.index(f"end {blocks - 1}")
    assert link.log[link.log.index(f"end {blocks - 2}") - 1] == f"end {blocks + 8}"  # the tenth failure
    assert n_failed_before == 2 * 10 - 1  # each but the last was followed by the start of another trial


def test_a_search_all_of_whose_trials_fail_does_not_use_up_its_study():
    with pytest.raises(SearchFailed, match=r"^the first 73 trials all failed; the last one:\nValueError: no"):
        search(link := ScriptedLink(failing), trials=500, blocks=64)
    assert (
        sum(entry.startswith("start") for entry in link.log) == 64 + 9
    )  # those that ran, and before the tenth failure


def test_a_failed_trial_of_an_earlier_search_does_not_keep_a_search_alive_all_of_whose_trials_fail():
    store = ListedStore([TrialRecord(0, "failed", {"x": 0}, error="ValueError: no")])
    with pytest.raises(SearchFailed, match=r"^none of the 11 trials of the study succeeded; the last one:\n"):
        search(ScriptedLink(failing), trials=20, store=store)


@pytest.mark.parametrize(("trials", "n_proposals"), [(5, 99), (99, 4)])
def test_a_search_all_of_whose_trials_fail_has_failed(trials, n_proposals):
    class Short(ListedStrategy):
        finished = property(lambda self: not self.left)

    with pytest.raises(SearchFailed, match=f"the first {min(trials, n_proposals)} trials all failed"):
        search(ScriptedLink(failing), trials=trials, blocks=2, strategy=Short(n_proposals))


def test_a_study_all_of_whose_trials_have_failed_is_not_finished():
    records = [TrialRecord(n, "failed", {"x": n}, error="ValueError: no") for n in range(3)]
    for was_finished in (False, True):  # the command is repeated
        store = ListedStore(records)
        with pytest.raises(
            SearchFailed, match=r"^all 3 trials of the study have failed, and .* run again\n  → .*--study"
        ):
            search(ScriptedLink(squares), trials=3, store=store, was_finished=was_finished)
        assert store.events == ["study_resumed"]


def test_a_single_trial_that_fails_is_not_called_the_first_trials():
    with pytest.raises(SearchFailed, match=r"^the first trial failed:\nValueError: no"):
        search(ScriptedLink(failing), trials=1)


def pruned(assignment) -> Outcome:
    outcome = squares(assignment)
    outcome.state = "pruned" if assignment.number % 2 else "complete"
    outcome.folds = [a_fold(0, 1.0, 1.0)]
    return outcome


class RecordedTrials(CompleteTrials):
    """Lists the trials that it is given to compare others with."""

    def __init__(self) -> None:
        super().__init__(2)
        self.added: list[int] = []

    def add(self, proposal, figure_of_merit, folds):
        self.added.append(proposal.number)


def test_a_pruned_trial_is_recorded_as_pruned_and_is_no_reference():
    store, complete_trials = ListedStore(), RecordedTrials()
    pool = BlockPool(ScriptedLink(pruned), BlockMembership.of(BlockLayout(2, 1)))
    Coordinator(
        pool, ListedStrategy(), store, 1, SearchSettings(SearchLimits(4), n_folds=2, complete_trials=complete_trials)
    ).run()
    assert [finish.outcome.state for finish in store.finished] == ["complete", "pruned"] * 2
    assert complete_trials.added == [0, 2]


def test_a_pruned_trial_of_an_earlier_search_is_no_reference():
    records = [
        TrialRecord(0, "pruned", {"x": 0}, one_figure(4.0)),
        TrialRecord(1, "complete", {"x": 1}, one_figure(4.0)),
    ]
    store, complete_trials = ListedStore(records), RecordedTrials()
    store.folds = lambda study_id: []
    pool = BlockPool(ScriptedLink(squares), BlockMembership.of(BlockLayout(2, 1)))
    Coordinator(
        pool, ListedStrategy(), store, 1, SearchSettings(SearchLimits(2), n_folds=2, complete_trials=complete_trials)
    ).run()
    assert complete_trials.added == [1]


def test_a_pruned_trial_does_not_reach_the_target():
    def run(assignment):
        outcome = squares(assignment)
        outcome.state = "pruned" if assignment.number == 0 else "complete"
        return outcome

    _, store = search(ScriptedLink(run), trials=50, target=(1.0,))
    assert [finish.outcome.state for finish in store.finished] == ["pruned", "complete"]


def test_a_strategy_that_has_no_more_ends_the_search():
    _, store = search(ScriptedLink(squares), trials=100, strategy=ListedStrategy(n=5), blocks=4)
    assert len(store.finished) == 5


def test_mistakes_of_the_user_end_the_search_before_a_trial():
    link, store = ScriptedLink(squares, error=UserError("no data")), ListedStore()
    with pytest.raises(UserError, match="no data"):
        search(link, store=store)
    assert link.dismissed
    assert not store.started


def test_a_continued_study_keeps_its_trials_and_first_repeats_those_that_were_running():
    records = [
        TrialRecord(0, "complete", {"x": 0}, one_figure(4.0)),
        TrialRecord(1, "running", {"x": 1}, attempts=1),
        TrialRecord(2, "failed", {"x": 2}, error="lost"),
        TrialRecord(3, "queued", {"x": 3}, attempts=2),
    ]
    assigned = []

    def noted(assignment):
        assigned.append((assignment.number, assignment.attempt))
        return squares(assignment)

    strategy, store = search(ScriptedLink(noted), trials=6, store=ListedStore(records))
    assert [(start.proposal.number, start.attempt) for start in store.started] == [(1, 2), (3, 3), (4, 1), (5, 1)]
    assert sorted(assigned) == [(1, 2), (3, 3), (4, 1), (5, 1)]  # workers write in a folder of the attempt
    assert store.requeued == [1]
    assert strategy.told[:2] == [(0, 4.0), (2, Failed("lost"))]
    assert dict(zip(store.events, store.details, strict=True))["study_resumed"] == "2 finished, 2 queued"


def test_a_trial_that_a_workload_system_runs_is_not_run_by_the_search():
    store = ListedStore([TrialRecord(0, "running", {"x": 0}, attempts=1)])
    store.attempted = [AttemptRecord(0, 1, 0, EXTERNAL_RANKS, "", "", "", "running", "")]
    search(ScriptedLink(squares), trials=3, store=store)
    assert [start.proposal.number for start in store.started] == [1, 2]


def test_a_trial_that_a_workload_system_gives_back_runs_as_the_attempt_after_its_last_one(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.trials.from_others.POLL_S", 0.0)
    store = ListedStore([TrialRecord(0, "running", {"x": 0}, attempts=3)])
    store.attempted = [AttemptRecord(0, 3, 0, EXTERNAL_RANKS, "", "", "", "running", "")]

    def start(study_id, starts, start=store.start):
        store.records = [TrialRecord(0, "queued", {"x": 0}, attempts=3)]
        start(study_id, starts)

    store.start = start
    search(ScriptedLink(squares), trials=3, store=store)
    assert [(start.proposal.number, start.attempt) for start in store.started] == [(1, 1), (0, 4), (2, 1)]


class ShareStore(ListedStore):
    """A store to which a workload system reports a trial at the time of the second start."""

    def __init__(self, told: TrialRecord) -> None:
        super().__init__()
        self.told = told

    def start(self, study_id, starts) -> None:
        if self.told.number in [one.proposal.number for one in starts] and self.told not in self.records:
            self.records = [TrialRecord(n, "complete", {"x": n}, one_figure(1.0)) for n in range(self.told.number)] + [
                self.told
            ]
            raise StoreConflictError("another process has started this trial")
        super().start(study_id, starts)


def test_a_target_that_a_workload_system_reached_between_two_trials_ends_the_search():
    store = ShareStore(TrialRecord(2, "complete", {"x": 2}, one_figure(0.0)))
    link, strategies = ScriptedLink(lambda one: an_outcome(one.number, "complete", 1.0, None, 1.0)), []

    def new_strategy():
        strategies.append(ListedStrategy())
        return strategies[-1]

    pool = BlockPool(link, BlockMembership.of(BlockLayout(2, 1)))
    settings = SearchSettings(SearchLimits(50, target=(0.5,)), new_strategy=new_strategy)
    Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert [start.proposal.number for start in store.started] == [0, 1]
    assert store.events == ["study_finished"]


def test_a_target_that_a_workload_system_reached_stops_the_trials_that_still_run():
    class Share(ShareStore):
        def start(self, study_id, starts) -> None:
            try:
                super().start(study_id, starts)
            except StoreConflictError:
                self.records[0] = TrialRecord(0, "running", {"x": 0}, attempts=1)
                raise

    store = Share(TrialRecord(2, "complete", {"x": 2}, one_figure(0.0)))
    outcome_of = lambda one: an_outcome(one.number, "complete", 1.0, None, 1.0)  # noqa: E731
    link = ScriptedLink(outcome_of, order=lambda numbers: -1)  # trial 1 ends before trial 0
    pool = BlockPool(link, BlockMembership.of(BlockLayout(3, 1)))
    settings = SearchSettings(SearchLimits(50, target=(0.5,)), new_strategy=ListedStrategy)
    Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert link.stopped == [(1, 0)]
    assert store.events == ["study_finished"]


def test_trials_that_a_workload_system_ends_between_two_starts_are_shown():
    shown = []

    class Shown(Progress):
        def finished(self, block, outcome, proposal):
            shown.append((block, outcome.number))

    store = ShareStore(TrialRecord(2, "complete", {"x": 2}, one_figure(1.0)))
    store.records = [TrialRecord(0, "running", {"x": 0}, attempts=1)]
    store.attempted = [AttemptRecord(0, 1, 0, EXTERNAL_RANKS, "", "", "", "running", "")]
    pool = BlockPool(ScriptedLink(squares), BlockMembership.of(BlockLayout(2, 1)))
    settings = SearchSettings(SearchLimits(4), progress=Shown(), new_strategy=ListedStrategy)
    Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert shown == [(0, 1), (EXTERNAL_BLOCK, 0), (EXTERNAL_BLOCK, 2), (0, 3)]


class NoTimeAfterFirst(StopCondition):
    """After the first trial has ended there is no time for another one."""

    n_ended = 0

    def add_duration(self, duration_s):
        self.n_ended += 1

    def has_time_for_one(self):
        return self.n_ended == 0


@pytest.mark.parametrize(("n_points", "event"), [(2, "study_finished"), (3, "search_stopped")])
def test_a_study_is_finished_if_its_last_point_ends_when_no_more_trials_start(n_points, event):
    store, pool = ListedStore(), BlockPool(ScriptedLink(squares), BlockMembership.of(BlockLayout(3, 1)))
    settings = SearchSettings(SearchLimits(9), stop_condition=NoTimeAfterFirst())
    Coordinator(pool, ListedStrategy(n=n_points), store, 1, settings).run()
    assert len(store.finished) == 2
    assert store.events == [event]


def test_a_target_that_is_reached_when_no_more_trials_start_is_the_reason_of_the_end():
    store, pool = (
        ListedStore(),
        BlockPool(
            ScriptedLink(lambda one: an_outcome(one.number, "complete", 3.0 - one.number, None, 1.0)),
            BlockMembership.of(BlockLayout(3, 1)),
        ),
    )
    settings = SearchSettings(SearchLimits(9, target=(2.5,)), stop_condition=NoTimeAfterFirst())
    Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert [finish.outcome.number for finish in store.finished] == [0, 1]
    assert (store.events, store.details) == (["study_finished"], ["trial 1 reached the target"])


def test_a_search_does_not_finish_the_study_while_a_workload_system_runs_one_of_its_trials():
    store = ListedStore([TrialRecord(0, "running", {"x": 0}, attempts=1)])
    store.attempted = [AttemptRecord(0, 1, 0, EXTERNAL_RANKS, "", "", "", "running", "")]
    search(ScriptedLink(squares), trials=3, store=store)
    assert store.events == ["study_resumed", "search_finished"]
    search(ScriptedLink(squares), trials=3, store=store, target=(1.0,))
    assert store.events[2:] == ["study_resumed", "study_finished"]  # the target is reached


def test_a_study_continues_although_a_pruned_trial_was_as_good_as_the_target():
    """The values of a pruned trial are provisional: it did not end the search in which it ran."""
    records = [TrialRecord(0, "pruned", {"x": 0}, one_figure(0.5)), TrialRecord(1, "queued", {"x": 1})]
    _, store = search(ScriptedLink(squares), trials=3, store=ListedStore(records), target=(0.5,))
    assert [start.proposal.number for start in store.started][:1] == [1]


def test_a_finished_study_is_left_as_it_is():
    records = [TrialRecord(n, "complete", {"x": n}, one_figure(1.0)) for n in range(6)]
    _, store = search(link := ScriptedLink(squares), trials=6, store=ListedStore(records))
    assert not store.started
    assert not link.joined  # no block loads data in vain


def test_a_report_of_a_block_that_was_given_up_is_ignored():
    class Pruning(ListedStrategy):
        def report(self, proposal, step, value):
            return Decision.STOP

    class Late(Deaths):
        def send(self, rank, message):
            super().send(rank, message)
            if isinstance(message, Assignment) and message.number == 0 and rank != 1:
                self.waiting.append((1, Report(0, 0, 3, 99.0)))

    link = Late(squares, {0: 1})
    search(link, blocks=2, trials=3, strategy=Pruning())
    assert link.stopped == []


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1), ("maximize", -1)])
def test_a_pruned_trial_is_stopped_once_all_its_folds_have_reported(direction, sign):
    class Pruning(ListedStrategy):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[int, float]] = []

        def report(self, proposal, step, value):
            self.seen.append((step, value))
            return Decision.STOP

    class Reporting(ScriptedLink):
        def send(self, rank, message):
            super().send(rank, message)
            if isinstance(message, Assignment):
                self.waiting += [(1, Report(0, 0, 3, 1.0)), (3, Report(0, 1, 3, 2.0)), (3, Report(0, 1, 3, 9.0))]

    strategy, link = Pruning(), Reporting(squares)
    pool = BlockPool(link, BlockMembership.of(BlockLayout(5, 4, n_folds=2)))
    limits = SearchLimits(1, figures_of_merit=FiguresOfMerit(directions=(direction,)))
    Coordinator(pool, strategy, ListedStore(), 1, SearchSettings(limits, n_folds=2)).run()
    assert strategy.seen == [(3, sign * 1.5)]
    assert link.stopped == [(1, 0), (3, 0)]


class Listing(Progress):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_steps_that_are_reported_several_times_are_noted_once():
    class Reporting(ScriptedLink):
        def send(self, rank, message):
            super().send(rank, message)
            if isinstance(message, Assignment):
                self.waiting += [(1, Report(message.number, 0, step, 1.0)) for step in (0, 1, 1, 1)]

    progress = Listing()
    pool = BlockPool(Reporting(squares), BlockMembership.of(BlockLayout(2, 1)))
    settings = SearchSettings(SearchLimits(3), progress=progress)
    Coordinator(pool, ListedStrategy(), ListedStore(), 1, settings).run()
    (note,) = [note for note in progress.notes if "several times" in note]
    assert note.startswith("trial 0 has reported step 1 several times, and the first value counts")


class Deaths(ScriptedLink):
    """Ranks that die when they get certain trials."""

    def __init__(self, run, deaths: dict[int, int]) -> None:
        super().__init__(run)
        self.deaths = deaths

    def send(self, rank, message):
        super().send(rank, message)
        if isinstance(message, Assignment) and self.deaths.get(message.number, 0) > 0:
            self.deaths[message.number] -= 1
            del self.assigned[message.number]
            self.waiting.append((0, Lost(frozenset({rank}))))


def test_a_lost_rank_frees_its_trial():
    strategy, store = search(Deaths(squares, {2: 1}), blocks=3, trials=6)
    assert sorted(number for number, _ in strategy.told) == list(range(6))
    assert [start.attempt for start in store.started if start.proposal.number == 2] == [1, 2]
    assert store.requeued == [2]
    assert "rank_lost" in store.events


def test_a_trial_that_failed_only_as_the_consequence_of_a_loss_runs_again():
    """No rank of its block knows a cause, and the block may not be able to communicate any more."""
    failures = {3: 1}

    def run(assignment):
        if failures.get(assignment.number, 0) > 0:
            failures[assignment.number] -= 1
            return Outcome(assignment.number, "failed", error="MPI_ERR_PROC_FAILED", is_consequence=True)
        return squares(assignment)

    strategy, store = search(ScriptedLink(run), blocks=2, trials=6)
    assert dict(strategy.told)[3] == 9.0
    assert [start.attempt for start in store.started if start.proposal.number == 3] == [1, 2]
    assert store.requeued == [3]
    assert "block_lost" in store.events
    failures[3] = 9
    strategy, store = search(ScriptedLink(run), blocks=2, trials=6, retries=1)
    assert isinstance(dict(strategy.told)[3], Failed)


def test_a_late_outcome_of_a_block_that_was_given_up_is_ignored():
    class Late(Deaths):
        def send(self, rank, message):
            super().send(rank, message)
            if isinstance(message, Assignment) and message.number == 0 and rank != 1:
                self.waiting.append((1, an_outcome(0, "complete", 99.0, None, 1.0)))

    strategy, store = search(Late(squares, {0: 1}), blocks=2, trials=3)
    assert dict(strategy.told) == {0: 0.0, 1: 1.0, 2: 4.0}
    assert len(store.finished) == 3


def test_a_trial_whose_ranks_are_lost_again_and_again_has_failed():
    strategy, store = search(Deaths(squares, {2: 9}), blocks=4, trials=6, retries=1)
    assert isinstance(dict(strategy.told)[2], Failed)
    assert sorted(number for number, _ in strategy.told) == list(range(6))
    assert len([start for start in store.started if start.proposal.number == 2]) == 2


def test_only_losses_of_this_search_count_against_a_trial():
    cancelled = ListedStore([TrialRecord(0, "queued", {"x": 0}, attempts=2)])
    strategy, store = search(Deaths(squares, {0: 1}), blocks=3, trials=2, store=cancelled, retries=1)
    assert [start.attempt for start in store.started if start.proposal.number == 0] == [3, 4]
    assert not isinstance(dict(strategy.told)[0], Failed)


@pytest.mark.parametrize(
    ("outcomes", "minutes", "is_protected", "state"),
    [
        (["killed"] * 3, [0, 5, 9], False, "failed"),
        (["killed", "lost", "killed"], [0, 5, 9], False, "complete"),
        (["killed"] * 3, [0, 5, 11], False, "complete"),
        (["killed"] * 30, [11] * 30, False, "complete"),
        (["killed"] * 9, [1] * 9, True, "complete"),
        (["killed"] * 10, [1] * 10, True, "failed"),
    ],
)
def test_a_trial_that_had_just_started_whenever_its_search_was_killed_has_failed(
    outcomes, minutes, is_protected, state, monkeypatch
):
    monkeypatch.setattr(ScriptedLink, "is_protected", is_protected)
    store = ListedStore([TrialRecord(0, "running", {"x": 0}, attempts=len(outcomes))])
    times = [("2026-01-01T12:00:00+00:00", f"2026-01-01T12:{minute:02d}:00+00:00") for minute in minutes]
    attempts = zip(outcomes, times, strict=True)
    store.attempted = [AttemptRecord(0, n, 0, "1", "", *at, outcome, "") for n, (outcome, at) in enumerate(attempts, 1)]
    search(ScriptedLink(squares), trials=1, store=store)
    assert store.finished[0].outcome.state == state


def test_a_rank_lost_just_before_the_search_is_cancelled_counts_against_no_trial():
    request, strategy, store = StopRequest(), ListedStrategy(), ListedStore()

    class Cancelled(Deaths):
        def receive(self, timeout_s, is_interrupted):
            found = super().receive(timeout_s, is_interrupted)
            if any(isinstance(message, Lost) for _, message in found):
                threading.Timer(0.1, request.ask, ["SIGTERM"]).start()  # a batch system reaches rank 0 last
            return found

    pool = BlockPool(Cancelled(squares, {2: 1}), BlockMembership.of(BlockLayout(4, 1)))
    Coordinator(
        pool, strategy, store, 1, SearchSettings(SearchLimits(6, retries=0), stop_condition=StopCondition(request))
    ).run()
    assert 2 in store.requeued
    assert 2 not in dict(strategy.told)
    assert store.events[-1] == "search_stopped"


def test_a_request_is_noticed_at_once_and_first_queues_the_running_trials():
    """Open MPI may kill all ranks 0.25 s after the request."""
    request, interrupted, done = StopRequest(), [], []

    class Asked(ScriptedLink):
        def receive(self, timeout_s, is_interrupted):
            interrupted.append(is_interrupted())
            if self.assigned and request.signal_name is None:
                request.ask("SIGTERM")
                interrupted.append(is_interrupted())
                return []
            return super().receive(timeout_s, is_interrupted)

        def send(self, rank, message):
            if isinstance(message, Stop):
                done.append("message")
            super().send(rank, message)

    class Queue(ListedStore):
        def requeue(self, *arguments):
            done.append("store")
            super().requeue(*arguments)

    class Notes(Progress):
        def note(self, text):
            done.append("note")

    pool, store = BlockPool(Asked(squares), BlockMembership.of(BlockLayout(2, 1))), Queue()
    settings = SearchSettings(SearchLimits(6), progress=Notes(), stop_condition=StopCondition(request))
    Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert store.requeued == [0]
    assert done[:3] == ["store", "note", "message"]
    assert interrupted.count(True) == 1  # at the request; later waits are for the blocks to end
    assert not interrupted[-1]


def test_survivors_of_two_blocks_form_a_new_one():
    link = Deaths(squares, {0: 1, 1: 1})
    pool = BlockPool(link, BlockMembership.of(BlockLayout(5, 2)))
    strategy, store = ListedStrategy(), ListedStore()
    Coordinator(pool, strategy, store, 1, SearchSettings(SearchLimits(6))).run()
    assert sorted(number for number, _ in strategy.told) == list(range(6))
    assert pool.membership.blocks == {2: (2, 4)}


def test_a_search_without_ranks_can_be_continued():
    """A trial that kills every search is failed after some."""
    store, requeued = ListedStore(), []
    store.requeue = lambda study, *arguments: requeued.append(arguments)
    with pytest.raises(RanksLost, match="every rank that could run a trial was lost; the same command continues"):
        search(Deaths(squares, {0: 1}), blocks=1, trials=6, store=store)
    assert store.events == ["rank_lost", "search_stopped"]
    assert requeued == [([0], "a rank of its block was lost", "killed")]


def test_the_loss_of_all_ranks_counts_against_no_trial_if_the_job_is_being_cancelled():
    """Slurm may end the ranks of other nodes before rank 0 receives its signal."""
    request, store, requeued = StopRequest(), ListedStore(), []
    store.requeue = lambda study, *arguments: requeued.append(arguments)

    class Cancelled(Deaths):
        def send(self, rank, message):
            super().send(rank, message)
            if isinstance(message, Assignment):
                threading.Timer(0.05, request.ask, ["SIGTERM"]).start()

    pool = BlockPool(Cancelled(squares, {0: 1}), BlockMembership.of(BlockLayout(2, 1)))
    settings = SearchSettings(SearchLimits(6), stop_condition=StopCondition(request))
    Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert requeued == [([0], "a rank of its block was lost", "lost")]
    assert store.events == ["rank_lost", "search_stopped"]


def test_a_search_whose_last_block_is_lost_ends_in_order_although_another_could_not_be_formed():
    class Half(Unreachable, Deaths):
        def __init__(self) -> None:
            Deaths.__init__(self, squares, {3: 1})
            self.ranks, self.n_joins = {2}, 0

    strategy, store = ListedStrategy(), ListedStore()
    with pytest.raises(RanksLost):
        search(link := Half(), blocks=2, trials=6, strategy=strategy, store=store)
    assert link.n_joins > 3
    assert sorted(number for number, _ in strategy.told) == [0, 1, 2]
    assert store.events[-1] == "search_stopped"


def test_a_search_whose_ranks_die_before_their_first_trial_has_failed():
    class Loading(ScriptedLink):
        """The rank dies while it prepares the objective."""

        def send(self, rank, message):
            super().send(rank, message)
            if isinstance(message, Join):
                self.waiting = [(0, Lost(frozenset({rank})))]

    with pytest.raises(SearchFailed, match="every rank was lost before its first trial"):
        search(Loading(squares), blocks=1)


def test_notes_of_the_objective_are_shown_once():
    """Each block sends them when it is ready."""

    class Noting(ScriptedLink):
        def receive(self, timeout_s, is_interrupted):
            received = super().receive(timeout_s, is_interrupted)
            return [(rank, replace(m, notes=("it depends",)) if isinstance(m, Ready) else m) for rank, m in received]

    progress = Listing()
    pool = BlockPool(Noting(squares), BlockMembership.of(BlockLayout(4, 1)))
    settings = SearchSettings(SearchLimits(3), progress=progress)
    Coordinator(pool, ListedStrategy(), ListedStore(), 1, settings).run()
    assert progress.notes.count("note: it depends") == 1


NO_FILE = UserError("no such file: x.h5")


class LateError(ScriptedLink):
    """Block 0 gets a trial; then the preparation of block 1 fails.

    Args:
        outcome: The outcome of the trial, which arrives directly before the error; None if the trial still runs.
        error: The error of the preparation.
    """

    def __init__(self, outcome: Outcome | None = None, error: MPILearnError = NO_FILE) -> None:
        super().__init__(squares)
        self.outcome, self.late_error = outcome, error

    def receive(self, timeout_s, is_interrupted):
        if not self.assigned:
            return [(1, Ready(0, "host0"))]
        error = (2, Ready(1, "host1", self.late_error))
        return [error] if self.outcome is None else [(1, self.outcome), error]


@pytest.mark.parametrize("error", [NO_FILE, TrainingError("CUDA out of memory", rank=1, host="host1")], ids=repr)
def test_an_error_that_ends_the_search_counts_against_no_running_trial(error):
    """A trial that runs each time when the search is killed is failed after the third time."""

    store, requeued = ListedStore(), []
    store.requeue = lambda study, *arguments: requeued.append(arguments)
    with pytest.raises(type(error)):
        search(LateError(error=error), blocks=2, store=store)
    assert requeued == [([0], f"the search ended with an error: {error}", "lost")]
    assert store.finished == []


def test_an_exception_of_the_strategy_counts_against_no_running_trial():
    class Faulty(ListedStrategy):
        def tell(self, proposal, outcome):
            raise KeyError("momentum")

    with pytest.raises(KeyError, match="momentum"):
        search(ScriptedLink(squares), blocks=2, strategy=Faulty(), store=(store := ListedStore()))
    assert [finish.outcome.number for finish in store.finished] == [0]
    assert store.requeued == [1]


def test_a_trial_that_ends_just_before_an_error_of_another_block_is_recorded():
    store = ListedStore()
    with pytest.raises(UserError, match="no such file"):
        search(LateError(an_outcome(0, "complete", 4.0, None, 1.0)), blocks=2, store=store)
    assert [(finish.outcome.number, finish.outcome.figure_of_merit) for finish in store.finished] == [(0, 4.0)]
    assert store.requeued == []


def test_a_search_that_no_longer_owns_its_study_changes_nothing_after_an_error():
    """The search that owns it now may run the same trials."""

    def check_lease() -> None:
        if store.started:
            raise StudyOwnedError("another search runs the study")

    store = ListedStore()
    pool = BlockPool(LateError(an_outcome(0, "complete", 4.0, None, 1.0)), BlockMembership.of(BlockLayout(3, 1)))
    settings = SearchSettings(SearchLimits(6), check_lease=check_lease)
    with pytest.raises(UserError):
        Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert store.finished == store.requeued == []


def test_a_search_that_no_longer_owns_its_study_records_no_lost_rank_and_queues_no_trial():
    """The search that owns it now may run the trial of the lost rank."""

    def check_lease() -> None:
        if store.started:
            raise StudyOwnedError("another search has taken the study over")

    store = ListedStore()
    pool = BlockPool(Deaths(squares, {0: 1}), BlockMembership.of(BlockLayout(3, 1)))
    settings = SearchSettings(SearchLimits(6), check_lease=check_lease)
    with pytest.raises(StudyOwnedError):
        Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert store.requeued == store.events == []


def test_a_search_that_was_taken_over_ends_although_it_has_nothing_to_write():
    """All its blocks are busy for hours."""

    class Busy(ScriptedLink):
        n_waits = 0

        def receive(self, timeout_s, is_interrupted):
            if self.waiting:
                return super().receive(timeout_s, is_interrupted)
            self.n_waits += 1
            assert self.n_waits < 5, "the search continues"
            return []

    def check_lease() -> None:
        if store.started:
            raise StudyOwnedError("another search has taken the study over")

    store = ListedStore()
    pool = BlockPool(link := Busy(squares), BlockMembership.of(BlockLayout(3, 1)))
    settings = SearchSettings(SearchLimits(6), check_lease=check_lease)
    with pytest.raises(StudyOwnedError):
        Coordinator(pool, ListedStrategy(), store, 1, settings).run()
    assert link.n_waits == 1


class Unreachable(ScriptedLink):
    """Some ranks cannot form a block with any other."""

    def __init__(self, run, ranks) -> None:
        super().__init__(run)
        self.ranks, self.n_joins = ranks, 0

    def send(self, rank, message):
        if isinstance(message, Join) and rank == message.ranks[0]:
            self.n_joins += 1
            if self.ranks.intersection(message.ranks):
                self.waiting.append((rank, Broken(message.block, "MPI_ERR_UNSUPPORTED_OPERATION")))
                return
        super().send(rank, message)

    def call_watchdog(self, rank, message):
        if isinstance(message, Disband):
            super().call_watchdog(rank, message)


def test_blocks_that_can_never_be_formed_end_the_search_with_the_reason():
    link, store = Unreachable(squares, set(range(1, 9))), ListedStore()
    with pytest.raises(SearchFailed, match="no block of ranks could be formed; MPI says: MPI_ERR_UNSUPP"):
        Coordinator(
            BlockPool(link, BlockMembership.of(BlockLayout(9, 2))),
            ListedStrategy(),
            store,
            1,
            SearchSettings(SearchLimits(6)),
        ).run()
    assert link.n_joins <= 12
    assert link.dismissed == set(range(1, 9))
    assert not store.started


def test_ranks_that_can_form_no_block_cost_no_trial():
    link, store = Unreachable(squares, {3}), ListedStore()
    strategy = ListedStrategy()
    Coordinator(
        BlockPool(link, BlockMembership.of(BlockLayout(9, 2))), strategy, store, 1, SearchSettings(SearchLimits(40))
    ).run()
    assert sorted(number for number, _ in strategy.told) == list(range(40))
    assert not store.requeued
    assert link.n_joins <= 10
    assert link.dismissed == set(range(1, 9))


def test_a_block_that_fails_again_and_again_is_given_up():
    link = ScriptedLink(lambda a: failing(a) if link.busy == 2 else squares(a))

    def send(rank, message, send=link.send):
        send(rank, message)

    def receive(*arguments, receive=link.receive):
        link.busy = next(iter(link.assigned.values()))[0] if link.assigned else 0
        return receive(*arguments)

    link.send, link.receive = send, receive

    def call_watchdog(rank, message, call_watchdog=link.call_watchdog):
        call_watchdog(rank, message)
        link.waiting.append((0, Lost(frozenset({rank}))))  # its process has ended on request

    link.call_watchdog = call_watchdog
    _, store = search(link, blocks=2, trials=30)
    assert store.events == ["block_retired", "study_finished"]
    assert (2, "EndProcess") in link.called


def test_the_last_block_is_kept_although_its_trials_fail():
    link = Deaths(lambda a: squares(a) if a.number < 60 else failing(a), {59: 1})
    strategy, store = search(link, blocks=2, trials=80)
    assert "block_retired" not in store.events
    assert sorted(number for number, _ in strategy.told) == list(range(80))


def test_a_trial_that_cost_a_rank_by_taking_too_long_is_not_run_again():
    strategy, store = search(Deaths(squares, {2: 1}), blocks=3, trials=6, timeout_s=1e-9)
    assert "longer than trial.timeout" in dict(strategy.told)[2].reason
    assert not store.requeued


class Deaf(ScriptedLink):
    """The block of one trial never answers and cannot be interrupted."""

    def __init__(self, run, number: int) -> None:
        super().__init__(run)
        self.number = number

    def send(self, rank, message):
        super().send(rank, message)
        if isinstance(message, Assignment) and message.number == self.number:
            del self.assigned[self.number]

    def call_watchdog(self, rank, message):
        self.called.append((rank, type(message).__name__))


def test_the_last_trial_is_recorded_also_if_its_block_does_not_answer(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.TIMEOUT_SLACK_S", 0.0)
    strategy, store = search(Deaf(squares, 5), blocks=2, trials=6, timeout_s=0.05)
    assert "longer than trial.timeout" in dict(strategy.told)[5].reason
    assert sorted(finish.outcome.number for finish in store.finished) == list(range(6))


def test_a_trial_that_failed_with_its_block_is_recorded_with_the_time_since_its_start(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.TIMEOUT_SLACK_S", 0.0)
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 0.0)
    marks, store = [], ListedStore()

    def run(assignment):
        time.sleep(0.2)  # before the other trial starts
        marks.append(time.monotonic())
        return squares(assignment)

    def finish(study_id, finished, finish=store.finish):
        marks.append(time.monotonic())
        finish(study_id, finished)

    store.finish = finish
    search(Deaf(run, 1), trials=2, store=store, timeout_s=0.05)
    began, _, ended = marks
    assert 0.05 <= store.finished[1].outcome.duration_s < ended - began + 0.1


def test_a_trial_that_raised_has_failed_also_if_nothing_frees_the_others_of_its_block(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.trials.trial_queue.STRANDED_S", 0.05)
    link = Deaf(squares, 2)

    def send(rank, message, send=link.send):
        send(rank, message)
        if isinstance(message, Assignment) and message.number == 2:
            block = 0 if rank == 1 else 1
            link.waiting += [(rank, Abandoned(block, 0, "late")), (rank, Abandoned(block, 2, "ValueError: no"))]
            link.waiting.append((rank, Abandoned(1 - block, 2, "an earlier attempt on another block")))

    link.send = send
    strategy, store = search(link, blocks=2, trials=6)
    assert dict(strategy.told)[2] == Failed("ValueError: no")
    assert sorted(number for number, _ in strategy.told) == list(range(6))
    assert not store.requeued
    assert store.events == ["block_lost", "study_finished"]


def test_blocks_are_not_late_if_the_coordinator_waited_for_the_store(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.TIMEOUT_SLACK_S", 0.0)
    monkeypatch.setattr("mpi_opt.coordinator.blocks.listening_clock.MAX_GAP_S", 0.1)
    monkeypatch.setattr("mpi_opt.coordinator.retrying_store.PAUSE_S", 0.6)
    store, refusals = ListedStore(), [StoreFullError("no room", where="x.db")]

    def finish(study_id, finished, finish=store.finish):
        if refusals:
            raise refusals.pop()
        finish(study_id, finished)

    store.finish = finish
    strategy, _ = search(ScriptedLink(squares), trials=6, blocks=3, store=store, timeout_s=0.3)
    assert sorted(strategy.told) == [(n, float(n * n)) for n in range(6)]
    assert store.events == ["study_finished"]


def test_a_store_that_is_not_ready_is_not_waited_for_beyond_the_time_limit(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.retrying_store.PAUSE_S", 0.05)
    store = ListedStore()

    def finish(study_id, finished):
        raise StoreFullError("no room", where="x.db")

    store.finish = finish
    with pytest.raises(StoreFullError):
        search(link := ScriptedLink(squares), trials=3, store=store, time_limit_s=0.2)
    assert link.dismissed


@pytest.mark.parametrize("state", ["pruned", "failed"])  # the request may be why it failed
def test_a_request_to_end_requeues_the_running_trials(state):
    request, link = StopRequest(), ScriptedLink(squares)

    def receive(*arguments, receive=link.receive):
        if len(link.log) >= 4:
            request.ask("SIGTERM")
            return [(rank, an_outcome(n, state, 1.0, None, 1.0)) for n, (rank, _) in link.assigned.items()][
                : 1 if link.stopped else 0
            ]
        return receive(*arguments)

    link.receive = receive
    store = ListedStore()
    run(link, store, StopCondition(request), n_trials=100)
    assert set(store.requeued) == {max(start.proposal.number for start in store.started)}
    assert [finish.outcome.number for finish in store.finished] == list(range(len(store.started) - 1))
    assert store.events == ["search_stopped"]


@pytest.mark.parametrize("state", ["complete", "failed"])
def test_a_trial_that_a_workload_system_takes_while_the_search_ends_is_left_to_it(state, tmp_path):
    request, link = StopRequest(), ScriptedLink(squares)
    with Store.open(str(tmp_path / "shared.db")) as store:
        space = Space({"x": Real(0, 9)})
        study = store.create_study("shared", strategy="random", seed=1, configuration={}, space=space)

        def receive(*arguments, receive=link.receive):
            if len(link.log) < 4:
                return receive(*arguments)
            if request.signal_name is None:
                request.ask("SIGTERM")
                return []
            ((number, (rank, assignment)),) = link.assigned.items()
            store.start(study.id, [Attempt(assignment.proposal, 2, 0, EXTERNAL_RANKS, "")])
            link.assigned.clear()
            return [(rank, an_outcome(number, state, 1.0 if state == "complete" else None, None, 1.0))]

        link.receive = receive
        pool = BlockPool(link, BlockMembership.of(BlockLayout(2, 1)))
        settings = SearchSettings(SearchLimits(100), stop_condition=StopCondition(request))
        Coordinator(pool, ListedStrategy(), store, study.id, settings).run()
        taken = store.trials(study.id)[-1]
        assert (taken.state, taken.attempts) == ("running", 2)
        assert [attempt.outcome for attempt in store.attempts(study.id, [taken.number])] == ["lost", None]
        assert [event.kind for event in store.events(study.id)] == ["search_stopped"]


def test_of_two_trials_that_end_with_the_search_the_one_that_no_workload_system_took_is_recorded(tmp_path):
    request, link = StopRequest(), ScriptedLink(squares)
    with Store.open(str(tmp_path / "shared.db")) as store:
        space = Space({"x": Real(0, 9)})
        study = store.create_study("shared", strategy="random", seed=1, configuration={}, space=space)

        def receive(*arguments, receive=link.receive):
            if len(link.assigned) < 2:
                return receive(*arguments)
            if request.signal_name is None:
                request.ask("SIGTERM")
                return []
            taken = link.assigned[1][1].proposal
            store.start(study.id, [Attempt(taken, 2, 0, EXTERNAL_RANKS, "")])
            ended = [(rank, squares(assignment)) for rank, assignment in link.assigned.values()]
            link.assigned.clear()
            return ended

        link.receive = receive
        pool = BlockPool(link, BlockMembership.of(BlockLayout(3, 1)))
        settings = SearchSettings(SearchLimits(100), stop_condition=StopCondition(request))
        Coordinator(pool, ListedStrategy(), store, study.id, settings).run()
        assert [(one.state, one.attempts) for one in store.trials(study.id)] == [("complete", 1), ("running", 2)]


def test_a_request_that_comes_when_all_trials_have_ended_leaves_a_finished_study():
    request, store = StopRequest(), ListedStore()

    def finish(study_id, finished, finish=store.finish):
        finish(study_id, finished)
        if len(store.finished) == 3:
            request.ask("SIGTERM")

    store.finish = finish
    run(ScriptedLink(squares), store, StopCondition(request), n_trials=3)
    assert store.events == ["study_finished"]


class Ambiguous(StopCondition):
    """A condition that cannot tell a cancellation from a rank's death."""

    def may_be_death_of_a_rank(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("is_protected", "timeout_s", "outcome", "condition"),
    [
        (True, None, "lost", Ambiguous),
        (False, None, "killed", Ambiguous),
        (False, None, "lost", StopCondition),
        (False, 1e-9, None, Ambiguous),
    ],
)
def test_without_protection_a_running_trial_may_be_why_mpirun_ended_the_ranks(
    is_protected, timeout_s, outcome, condition, monkeypatch
):
    monkeypatch.setattr("mpi_opt.coordinator.search_ending.STOPPING_S", 0.1)
    monkeypatch.setattr("mpi_opt.coordinator.stop_condition.all_ranks_live", lambda: True)
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 0.1)
    link, store, requeued, request = Deaf(squares, 0), ListedStore(), [], StopRequest()
    link.is_protected = is_protected
    store.requeue = lambda study, *arguments: requeued.append(arguments)
    store.start = lambda study, starts: request.ask("SIGTERM")
    run(link, store, condition(request), n_trials=9, timeout_s=timeout_s)
    assert requeued == ([] if outcome is None else [([0], "the search ended: got SIGTERM", outcome)])
    assert [finish.outcome.number for finish in store.finished] == ([0] if outcome is None else [])
    assert link.called[-1] == (1, "EndProcess"), "a rank that hangs in its trial is not dismissed"


@pytest.mark.parametrize("copy_after", ["requeue", "event", None])
def test_a_cancellation_whose_second_signal_comes_late_counts_against_no_trial(copy_after, monkeypatch):
    """The batch system signals rank 0 and ``mpirun``, which passes it on. The first of the two may be a rank's death.

    The second one comes when the trial is recorded, when the search is over, or never.
    """
    monkeypatch.setattr("mpi_opt.coordinator.stop_condition.all_ranks_live", lambda: False)
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 0.0)
    monkeypatch.setattr("mpi_opt.coordinator.search_ending.STOPPING_S", 0.05)
    link, store, written, request = Deaf(squares, 0), ListedStore(), [], StopRequest()
    link.is_protected = False

    def record(name):
        def call(*arguments):
            written.append((name, *arguments[1:]))
            if name == copy_after:
                request.ask("SIGTERM")

        return call

    for name in ("requeue", "mark_lost", "event"):
        setattr(store, name, record(name))
    store.start = lambda study, starts: request.ask("SIGTERM")
    run(link, store, StopCondition(request), n_trials=9)
    killed, corrected = ("requeue", [0], "the search ended: got SIGTERM", "killed"), ("mark_lost", [(0, 1)])
    over = ("event", "search_stopped", "got SIGTERM")
    expected = {"requeue": [killed, corrected, over], "event": [killed, over, corrected], None: [killed, over]}
    assert written == expected[copy_after]


def test_no_trial_starts_that_would_end_after_the_time_limit():
    slow = ScriptedLink(lambda a: an_outcome(a.number, "complete", 1.0, None, 3600.0))
    _, store = search(slow, trials=100, time_limit_s=60.0)
    assert len(store.finished) == 1


def test_a_store_that_is_not_ready_is_waited_for(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.retrying_store.PAUSE_S", 0.01)
    store, refusals = ListedStore(), [StoreFullError("no room", where="x.db")] * 2

    def finish(study_id, finished, finish=store.finish):
        if refusals:
            raise refusals.pop()
        finish(study_id, finished)

    store.finish = finish
    search(ScriptedLink(squares), trials=3, store=store)
    assert [done.outcome.number for done in store.finished] == [0, 1, 2]


def test_a_trial_that_a_workload_system_runs_is_not_counted_as_killing_searches():
    store = ListedStore([TrialRecord(0, "running", {"x": 0}, attempts=11)])
    at = "2026-01-01T12:00:00+00:00"
    store.attempted = [AttemptRecord(0, n, 0, "1", "", at, at, "killed", "") for n in range(1, 11)]
    store.attempted.append(AttemptRecord(0, 11, 0, EXTERNAL_RANKS, "", at, None, None, ""))
    search(ScriptedLink(squares), trials=3, store=store)
    assert sorted(finish.outcome.number for finish in store.finished) == [1, 2]


def test_waiting_for_a_store_is_said_once_for_each_write(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.retrying_store.PAUSE_S", 0.0)
    notes, refusals = [], [StoreFullError("no room", where="x.db")] * 3
    progress = SimpleNamespace(note=notes.append)

    def event(study_id, kind, detail):
        if refusals:
            raise refusals.pop()

    store = RetryingStore(SimpleNamespace(event=event), 1, progress, must_end=lambda: False)
    store.event("a", "b")
    assert notes == ["the search waits for its store: x.db: no room"]
    refusals += [StoreFullError("no room", where="x.db")] * 2
    store.event("a", "b")
    assert len(notes) == 2
