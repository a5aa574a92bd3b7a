"""A study survives any order of starts, results, lost ranks, killed searches, lost leases and migrations.

Other programs ask for trials and tell results meanwhile. Hypothesis chooses the order. After each step, the tables are
read with SQL alone and compared with those before: each result is kept, no trial runs twice at once, numbers have no
gaps, and states change only in legal ways.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.read_study import read_study
from mpi_opt.core.trial import Outcome
from mpi_opt.errors import RanksLost, SearchFailed, StoreError
from mpi_opt.messages.messages import Abandoned, Broken, Lost, TrialProgress
from mpi_opt.objectives.function_objective import FunctionObjective
from mpi_opt.store import schema
from mpi_opt.store.errors import StudyOwnedError
from mpi_opt.study.asking.ask_tell import ask, tell
from mpi_opt.study.asking.external_results import ExternalResult
from mpi_opt.study.opening.lease import machine as this_machine
from tests.mpi_opt import stepped_search
from tests.mpi_opt.outcomes import an_outcome
from tests.mpi_opt.stepped_search import Killed, KillPlan, SteppedSearch

FINISHED = ("complete", "pruned", "failed")
NEXT = {
    "queued": {"queued", "running", "failed", "complete", "pruned"},
    "running": {"running", "queued", *FINISHED},
} | {state: {state} for state in FINISHED}
MOST_TRIALS = 40
MEMORY = Path("/dev/shm")
"""A commit on a disk takes much longer."""
DEAD = 2**30
"""The number of no process."""

DOWN = {
    3: (
        "DROP TABLE codes",
        "ALTER TABLE attempts DROP COLUMN code",
        "ALTER TABLE trials DROP COLUMN note",
        "ALTER TABLE studies DROP COLUMN commands",
    ),
    2: ("DROP TABLE leases", "DROP INDEX trials_by_ending", "ALTER TABLE studies DROP COLUMN n_ended"),
    1: (
        "DROP TABLE transferred",
        "DROP TABLE fold_figures_of_merit",
        "DROP TABLE figures_of_merit",
        "ALTER TABLE trials DROP COLUMN pareto",
        "ALTER TABLE studies DROP COLUMN merits",
        "ALTER TABLE studies DROP COLUMN selection",
    ),
}
"""Version -> the statements that turn a database of the next version into one of this version."""

outcomes = st.sampled_from(["complete", "complete", "complete", "failed", "pruned"])
places = st.sampled_from(["before", "inside", "after"])


class AnyOrder(RuleBasedStateMachine):
    """A study, the search that owns it, searches that have lost its lease, and the trials of other programs."""

    N_TRIALS = 6

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="any-order-", dir=MEMORY if MEMORY.is_dir() else None))
        self.path = self.folder / "store.db"
        self.search, self.stale = None, []
        self.external, self.returned = {}, []
        self.n_trials, self.n_values = self.N_TRIALS, 0
        self.results, self.before, self.n_epochs = {}, {}, {}

    def plan(self, n_ranks=2, block_size=1, is_elastic=False):
        content = {
            "study": "any",
            "store": f"sqlite:///{self.path}",
            "space": {"x": {"type": "real", "low": 0.0, "high": 1.0}},
            "objective": "any.py:objective",
            "search": {"strategy": "random", "trials": self.n_trials, "seed": 3},
            "blocks": {"size": block_size, "elastic": is_elastic},
            "trial": {"retries": 1},
        }
        return Plan(read_study(content), self.folder, FunctionObjective(str), n_ranks)

    # What happens

    @precondition(lambda self: self.search is None)
    @rule(
        n_blocks=st.integers(1, 3),
        block_size=st.integers(1, 2),
        is_protected=st.booleans(),
        is_elastic=st.booleans(),
    )
    def start_any(self, n_blocks, block_size, is_protected, is_elastic):
        self.start(n_blocks, block_size, is_protected, is_elastic)

    def start(self, n_blocks, block_size, is_protected, is_elastic):
        self.n_epochs = {}
        self.search = SteppedSearch(self.plan(1 + n_blocks * block_size, block_size, is_elastic), is_protected)
        self.see_end()

    @precondition(lambda self: self.search is not None and self.search.link.running)
    @rule(data=st.data(), n_epochs=st.integers(1, 3))
    def end_epochs(self, data, n_epochs):
        """Of all trials, in any order. Those that were asked to leave their block do so."""
        for _ in range(n_epochs):
            link, messages = self.search.link, []
            for leader in data.draw(st.permutations(sorted(link.running))):
                number = link.running[leader].number
                done = self.n_epochs[number] = self.n_epochs.get(number, 0) + 1
                messages.append((leader, TrialProgress(number, done, 100, 6, 10.0 * done)))
                if link.asked.pop(leader, None) == number:
                    del link.running[leader]
                    messages.append((leader, Outcome(number, "queued")))
            self.search.step(*messages)
        self.see_end()

    @precondition(lambda self: self.search is not None and self.search.link.running)
    @rule(data=st.data())
    def end_trials(self, data):
        """Trials of one or several blocks end in any order."""
        leaders = data.draw(st.permutations(sorted(self.search.link.running)))
        ended = [self.outcome(leader, data.draw(outcomes)) for leader in leaders[: data.draw(st.integers(1, 3))]]
        self.search.step(*ended)
        self.acknowledge(ended)
        self.see_end()

    @precondition(lambda self: self.search is not None and self.search.link.is_protected)
    @rule(data=st.data(), has_answered=st.booleans(), answers_late=st.booleans())
    def lose_a_rank(self, data, has_answered, answers_late):
        """Before or after its block has answered."""
        link = self.search.link
        block = data.draw(st.sampled_from(sorted(link.blocks)))
        ranks = link.blocks[block]
        lost = (0, Lost(frozenset({data.draw(st.sampled_from(ranks))})))
        ended = [self.outcome(ranks[0], "complete")] if ranks[0] in link.running and has_answered else []
        late = [self.outcome(ranks[0], "complete")] if ranks[0] in link.running and answers_late else []
        link.forget(block)
        self.search.step(*ended, lost, *late)
        self.acknowledge(ended)
        self.see_end()

    @precondition(lambda self: self.search is not None and self.search.link.blocks)
    @rule(data=st.data())
    def break_a_block(self, data):
        block = data.draw(st.sampled_from(sorted(self.search.link.blocks)))
        leader = self.search.link.blocks[block][0]
        self.search.step((leader, Broken(block, "no route to host")))
        self.see_end()

    @precondition(lambda self: self.search is not None and self.search.link.running)
    @rule(data=st.data())
    def abandon_a_trial(self, data):
        """One rank fails; its block answers afterwards."""
        leader = data.draw(st.sampled_from(sorted(self.search.link.running)))
        block = next(block for block, ranks in self.search.link.blocks.items() if ranks[0] == leader)
        number = self.search.link.running[leader].number
        self.search.step((leader, Abandoned(block, number, "RuntimeError: boom")))
        ended = [self.outcome(leader, "failed")]
        self.search.step(*ended)
        self.acknowledge(ended)
        self.see_end()

    @precondition(lambda self: self.search is not None)
    @rule(signal=st.sampled_from(["SIGTERM", "SIGUSR1", "SIGINT"]), data=st.data())
    def ask_to_stop(self, signal, data):
        """Trials may end at the same time. Those that have failed may have done so because of the stop."""
        leaders = data.draw(st.permutations(sorted(self.search.link.running)))
        ended = [self.outcome(one, data.draw(outcomes)) for one in leaders[: data.draw(st.integers(0, 2))]]
        self.search.request.ask(signal)
        self.search.step(*ended)
        self.acknowledge([one for one in ended if one[1].state == "complete"])
        for _ in range(20):
            if self.search.is_running:
                self.search.step()
        assert not self.search.is_running, "the search does not end"
        self.see_end()

    @precondition(lambda self: self.search is not None)
    @rule()
    def kill(self):
        self.search.kill()
        assert isinstance(self.search.error, Killed)
        self.leave_lease()
        self.see_end()

    @precondition(lambda self: self.search is not None and self.search.link.running)
    @rule(n_writes=st.integers(1, 3), place=places, outcome=outcomes, has_lost=st.booleans())
    def kill_while_it_writes(self, n_writes, place, outcome, has_lost):
        link = self.search.link
        leader = min(link.running)
        message = self.outcome(leader, outcome)
        if has_lost and link.is_protected:
            block = next(block for block, ranks in link.blocks.items() if ranks[0] == leader)
            link.forget(block)
            message = (0, Lost(frozenset({leader})))
        self.search.kill_at(KillPlan(n_writes, place))
        self.search.step(message)
        self.search.kill_at(None)
        if isinstance(self.search.error, Killed):
            self.leave_lease()
        elif message[0]:
            self.acknowledge([message])
        self.see_end()

    @precondition(lambda self: self.search is None)
    @rule(n_writes=st.integers(1, 6), place=places)
    def kill_at_the_start(self, n_writes, place):
        """While a search creates or resumes the study."""
        stepped_search.next_plan = KillPlan(n_writes, place)
        self.search = SteppedSearch(self.plan())
        if isinstance(self.search.error, Killed):
            self.leave_lease()
        self.search.kill_at(None)
        self.see_end()

    @precondition(lambda self: self.search is not None)
    @rule()
    def start_a_second_search(self):
        before = self.dump()
        second = SteppedSearch(self.plan())
        assert isinstance(second.error, StudyOwnedError)
        assert self.dump() == before

    @precondition(lambda self: self.search is not None and len(self.stale) < 2)
    @rule()
    def lose_the_lease(self):
        """The search was stopped for longer than another one waits, which has taken the study over and was killed."""
        self.leave_lease()
        self.search.notice_lease()
        self.stale.append(self.search)
        self.search = None

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), outcome=outcomes)
    def continue_without_the_lease(self, data, outcome):
        stale = self.stale.pop(data.draw(st.integers(0, len(self.stale) - 1)))
        before = self.dump()
        leaders = sorted(stale.link.running)
        stale.step(*[self.outcome(leader, outcome, stale) for leader in leaders[:1]])
        assert isinstance(stale.error, StudyOwnedError), f"it has ended with {stale.error!r}"
        assert self.dump() == before

    @rule(count=st.integers(1, 3))
    def ask_for_trials(self, count):
        """By a workload system, before or while a search runs."""
        for given in ask(self.plan(), count):
            assert given["number"] not in self.external
            assert given["number"] not in self.results
            self.external[given["number"]] = given["attempt"]
        self.wake()

    @precondition(lambda self: self.external)
    @rule(data=st.data(), how=st.sampled_from(["value", "failed", "lost"]))
    def tell_a_result(self, data, how):
        number = data.draw(st.sampled_from(sorted(self.external)))
        attempt = self.external.pop(number)
        self.n_values += 1
        result = {"value": float(self.n_values), "failed": "no memory", "lost": "its node"}[how]
        tell(str(self.path), "any", [ExternalResult(number=number, attempt=attempt, **{how: result})])
        if how == "value":
            self.results[number] = ("complete", result)
        elif how == "failed":
            self.results[number] = ("failed", None)
        self.returned.append((number, attempt))
        self.wake()

    @precondition(lambda self: self.returned)
    @rule(data=st.data())
    def tell_a_result_again(self, data):
        number, attempt = data.draw(st.sampled_from(self.returned))
        before = self.read()[:2]
        with pytest.raises(StoreError):
            tell(str(self.path), "any", [ExternalResult(number=number, attempt=attempt, value=-1.0)])
        assert self.read()[:2] == before

    @precondition(lambda self: self.search is None and not self.stale and self.path.exists())
    @rule(version=st.integers(1, schema.VERSION - 1))
    def turn_back_to_an_earlier_version(self, version):
        """The next program that opens the database migrates it."""
        with closing(sqlite3.connect(self.path)) as database:
            if not database.execute("SELECT name FROM sqlite_master WHERE name = 'schema_version'").fetchall():
                return
            ((now,),) = database.execute("SELECT version FROM schema_version").fetchall()
            for step in reversed(range(version, now)):
                for statement in DOWN[step]:
                    database.execute(statement)
            database.execute("UPDATE schema_version SET version = min(version, ?)", (version,))
            database.commit()

    @precondition(lambda self: self.n_trials < MOST_TRIALS and self.search is None)
    @rule(n_more=st.integers(1, 6))
    def ask_for_more_trials(self, n_more):
        self.n_trials += n_more

    # What must hold

    @invariant()
    def nothing_is_lost(self):
        self.the_tables_are_consistent()
        self.only_legal_changes_have_happened()
        self.every_result_is_kept()
        self.trials_run_where_the_tables_say()

    def the_tables_are_consistent(self):
        trials, attempts, n_ended = self.read()
        assert sorted(trials) == list(range(len(trials))), "the numbers have gaps"
        assert len(trials) <= self.n_trials
        assert len({row["parameters"] for row in trials.values()}) == len(trials), "a point was proposed twice"
        ended = {number: row for number, row in trials.items() if row["state"] in FINISHED}
        assert sorted(row["ended"] for row in ended.values()) == list(range(len(ended)))
        assert n_ended in (None, len(ended))
        for number, row in trials.items():
            assert row["state"] in NEXT
            own = attempts[number]
            assert sorted(own) == list(range(1, row["attempts"] + 1))
            assert all(own[one]["finished_at"] for one in list(own)[:-1]), "two attempts run"
            assert (own[row["attempts"]]["finished_at"] is None) == (row["state"] == "running")
            assert (row["figure_of_merit"] is not None) == (row["state"] in ("complete", "pruned"))
            assert (row["finished_at"] is None) == (row["state"] not in FINISHED)

    def only_legal_changes_have_happened(self):
        trials, _, _ = self.read()
        for number, old in self.before.items():
            assert number in trials, "a trial has disappeared"
            new = trials[number]
            assert new["state"] in NEXT[old["state"]], f"{old['state']} -> {new['state']}"
            assert new["parameters"] == old["parameters"]
            assert new["attempts"] >= old["attempts"]
            if old["state"] in FINISHED:
                assert new == old, "a finished trial has changed"
        self.before = trials

    def every_result_is_kept(self):
        trials, _, _ = self.read()
        for number, (state, value) in self.results.items():
            assert (trials[number]["state"], trials[number]["figure_of_merit"]) == (state, value)

    def trials_run_where_the_tables_say(self):
        trials, attempts, _ = self.read()
        running = {
            number: attempts[number][row["attempts"]] for number, row in trials.items() if row["state"] == "running"
        }
        elsewhere = {number for number, attempt in running.items() if attempt["ranks"] == "external"}
        assert elsewhere == set(self.external)
        if self.search is not None:
            on_blocks = {one.number: leader for leader, one in self.search.link.running.items()}
            assert set(running) - elsewhere == set(on_blocks)
            for number, leader in on_blocks.items():
                assert running[number]["ranks"].split(",")[0] == str(leader)

    def teardown(self):
        """The study is finished by a last search without faults."""
        try:
            while self.stale:
                self.stale.pop().kill()
            if self.search is not None:
                self.search.kill()
                self.leave_lease()
            for number, attempt in self.external.items():
                tell(str(self.path), "any", [ExternalResult(number=number, attempt=attempt, value=0.5)])
            self.external.clear()
            self.search = SteppedSearch(self.plan(3))
            self.see_end()
            while self.search is not None:
                assert self.search.link.running, "the search waits for nothing"
                ended = [self.outcome(leader, "complete") for leader in sorted(self.search.link.running)]
                self.search.step(*ended)
                self.acknowledge(ended)
                self.see_end()
            self.nothing_is_lost()
            trials, _, _ = self.read()
            assert len(trials) == self.n_trials
            assert all(row["state"] in FINISHED for row in trials.values())
        finally:
            shutil.rmtree(self.folder)

    # Parts of these

    def outcome(self, leader, state, search=None):
        """The message with which a block reports the end of its trial; its value differs from all others."""
        number = (search or self.search).link.running.pop(leader).number
        self.n_values += 1
        if state == "failed":
            return leader, Outcome(number, "failed", duration_s=0.1, error="ValueError: no")
        return leader, an_outcome(number, state, float(self.n_values), duration_s=0.1)

    def acknowledge(self, ended):
        """The results that the search must have recorded, because it waits for messages again or has ended in order."""
        for _, outcome in ended:
            self.results[outcome.number] = (outcome.state, outcome.figure_of_merit)

    def wake(self):
        """The search looks at the trials of other programs."""
        if self.search is not None:
            self.search.step()
            self.see_end()

    def see_end(self):
        """Forgets the search if it has ended, in a way that is allowed."""
        if self.search.is_running:
            return
        assert self.search.error is None or isinstance(self.search.error, Killed | SearchFailed | RanksLost), repr(
            self.search.error
        )
        self.search = None

    def leave_lease(self):
        """The lease of a process that does not exist any more, on this machine."""
        with closing(sqlite3.connect(self.path)) as database:
            if not database.execute("SELECT name FROM sqlite_master WHERE name = 'studies'").fetchall():
                return
            study = database.execute("SELECT id FROM studies").fetchall()
            for (key,) in study:
                database.execute("DELETE FROM leases")
                database.execute(
                    "INSERT INTO leases VALUES (?, 'dead', 'here', ?, ?, 1, '2026-01-01', '2026-01-01')",
                    (key, this_machine(), DEAD),
                )
            database.commit()

    def read(self):
        """Trials by number, their attempts by number, and the number of those that have ended."""
        if not self.path.exists():
            return {}, {}, None
        with closing(sqlite3.connect(self.path)) as database:
            database.row_factory = sqlite3.Row
            if not database.execute("SELECT name FROM sqlite_master WHERE name = 'trials'").fetchall():
                return {}, {}, None
            trials = {row["number"]: dict(row) for row in database.execute("SELECT * FROM trials")}
            for row in trials.values():
                for key in ("note", "pareto"):  # that earlier versions do not have
                    row.pop(key, None)
            attempts = {number: {} for number in trials}
            keys = {row["id"]: number for number, row in trials.items()}
            for row in database.execute("SELECT * FROM attempts ORDER BY attempt"):
                attempt = dict(row)
                attempt.pop("code", None)
                attempts[keys[row["trial_id"]]][row["attempt"]] = attempt
            studies = [dict(row) for row in database.execute("SELECT * FROM studies")]
        return trials, attempts, studies[0].get("n_ended") if studies else 0

    def dump(self):
        """Everything but the leases."""
        with closing(sqlite3.connect(self.path)) as database:
            return [line for line in database.iterdump() if not line.startswith('INSERT INTO "leases"')]


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """Without waits for real processes, and with a coordinator that can be killed in a transaction."""
    monkeypatch.setattr("mpi_opt.coordinator.search_ending.STOPPING_S", 0.0)
    monkeypatch.setattr("mpi_opt.coordinator.blocks.block_pool.PARTING_S", 0.0)
    monkeypatch.setattr("mpi_opt.coordinator.stop_condition.LOSS_S", 0.0)
    monkeypatch.setattr("mpi_opt.coordinator.stop_condition.COPY_S", 0.0)
    monkeypatch.setattr("mpi_opt.store.database.Database.writing", stepped_search.writing)
    monkeypatch.setattr("mpi_opt.coordinator.run_coordinator.leased", stepped_search.leased)


class FewTrials(AnyOrder):
    """Searches with fewer trials than blocks at first, where idle ranks join running trials. Nothing else disturbs."""

    N_TRIALS = 2
    kill_while_it_writes = kill_at_the_start = start_a_second_search = turn_back_to_an_earlier_version = None
    lose_the_lease = continue_without_the_lease = ask_for_trials = tell_a_result = tell_a_result_again = None

    @precondition(lambda self: self.search is None)
    @rule(block_size=st.integers(1, 2))
    def start_any(self, block_size):
        self.start(4, block_size, is_protected=True, is_elastic=True)


def explore(machine, n_studies, n_steps, **options):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=n_studies,
            stateful_step_count=n_steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


@pytest.mark.parametrize("machine", [AnyOrder, FewTrials])
def test_a_study_survives_any_order_of_events(machine):
    explore(machine, 4, 25, derandomize=True)


@pytest.mark.thorough
@pytest.mark.parametrize("machine", [AnyOrder, FewTrials])
def test_a_study_survives_ten_thousand_events(machine):
    explore(machine, 60, 40)


def test_each_migration_has_its_inverse_here():
    assert set(DOWN) == set(schema.MIGRATIONS)
