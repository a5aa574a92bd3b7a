"""A study whose trials other programs run: a batch or workload system asks for trials and reports their results.

Each call is a process, which opens the study, answers and ends. When several processes write at once, the database
accepts one of them; the other processes read the study again and retry. So no trial is given out twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from mpi_opt.configuration.plan import Plan
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures import Figures, Measured
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.core.search_space.space import Hint, points_and_limits, points_in
from mpi_opt.core.trial import FINISHED, Outcome, Proposal, TrialRecord, trial_seed
from mpi_opt.errors import ConfigurationError, StoreError
from mpi_opt.store import Store
from mpi_opt.store.connecting import is_in_memory, parsed
from mpi_opt.store.errors import (
    StoreConflictError,
    StoreNotReadyError,
    StoreOutdatedError,
    StudyOwnedError,
    no_such_trial,
)
from mpi_opt.store.events import CODE_CHANGED, STRATEGY_FAILED, STUDY_FINISHED, STUDY_RESUMED
from mpi_opt.store.records import AttemptRecord, GivenBack, StudyRecord
from mpi_opt.study.asking.external_results import ExternalResult
from mpi_opt.study.opening.lease import owner_as_text
from mpi_opt.study.opening.open_study import OpenStudy, open_study
from mpi_opt.study.reading import EXTERNAL_BLOCK, EXTERNAL_RANKS, PastTrials, is_finished, read_record, sorted_front
from mpi_opt.study.user_code import changes, code_record, use_code

RETRY_LIMIT_S = 60.0
"""The time limit for retries while other processes write to the store, in seconds."""

PAUSE_S = 0.2
"""The longest pause before a retry, in seconds. Pauses are random, so that many processes do not retry at once."""

Answer = TypeVar("Answer")


def ask(plan: Plan, count: int, note: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """Gives out at most `count` trials of a study, which are recorded as running. Creates the study if necessary.

    Trials that an interrupted search left in the queue come first. Fewer trials or none are returned when all of
    ``search.trials`` have been given out, the target is reached, or the strategy waits for results.

    Args:
        plan: The plan of the study.
        count: The largest number of trials.
        note: Receives messages for the user.

    Returns:
        ``number``, ``attempt``, ``parameters``, ``seed``, ``study`` of each; ``budget`` and ``resume_from`` if the
        strategy sets them.

    Raises:
        UserError: The study was created with another space, or the store or the strategy cannot be used.
    """
    check_shared(plan.configuration.store)
    return retried(lambda: _give_out(plan, count, note))


def tell(url: str, name: str | None, results: Sequence[ExternalResult]) -> tuple[StudyRecord, list[TrialRecord]]:
    """Records the results of trials that `ask` gave out: all of `results`, or, if it raises, none.

    Args:
        url: The URL of the store.
        name: The name of the study; None for the only study of the store.
        results: At most one for each trial.

    Returns:
        The study after the call, and its Pareto front, best first; the front is empty with one figure of merit.

    Raises:
        StoreNotReadyError: The database could not be written or read for a minute. If only the reading failed, the
            results are recorded.
        UserError: There is no such store, study or trial; a trial is not running, or a search runs it; a result is of
            another study or attempt, or has a wrong number of values.
    """
    with suppress(
        StoreOutdatedError
    ):  # the trials were given out by an earlier version; opening it for writing migrates
        Store.open(url, read_only=True).close()  # `ask` has created the store: a wrong name must not create another one
    name = retried(lambda: _record_results(url, name, results))
    return retried(lambda: _study_and_front(url, name))  # a separate retry: results are recorded once


def _give_out(plan: Plan, count: int, note: Callable[[str], None]) -> list[dict[str, Any]]:
    """The next trials, which are recorded as running, as JSON objects."""
    limits = plan.limits
    with open_study(plan, awaits_refit=True) as study:
        _extend(study)
        past = PastTrials.read(study.store, study.record.id, limits.figures_of_merit, plan.configuration.folds.number)
        if any(limits.reaches_target(record) for record in past.ended):
            _record_end(study, "the target is reached")
            return []
        past.replay(study.strategy)
        _follow_hints(study, past, note)
        queued = [record for record in past.unfinished if record.state == "queued"][:count]
        n_new = min(count - len(queued), limits.n_trials - len(past))
        trials = [(record.proposal, record.attempts + 1) for record in queued]
        trials += [(proposal, 1) for proposal in (study.strategy.ask(n_new) if n_new > 0 else [])]
        _report_problems(study, note)
        if trials:
            study.store.add_command(study.record, plan.command)
            if study.store.leases.read(study.record.id) is None:  # else the settings are those of the search that runs
                study.use_settings(plan)
            code = _use_code(plan, study)
            starts = [
                Attempt(proposal, attempt, EXTERNAL_BLOCK, EXTERNAL_RANKS, hosts="", code=code)
                for proposal, attempt in trials
            ]
            study.store.start(study.record.id, starts)
            if is_finished(study.store, study.record):  # before this call
                study.store.event(study.record.id, STUDY_RESUMED, str(past))
        elif not past.unfinished:
            _record_end(study, "there are no more trials")
        return [_as_json_object(*trial, study.record) for trial in trials]


def _follow_hints(study: OpenStudy, past: PastTrials, note: Callable[[str], None]) -> None:
    """Passes the hints of users to the strategy, without the points that have trials."""
    if hints := [Hint.from_text(text) for text in study.store.hints(study.record.id)]:
        points, limits = points_and_limits(hints)
        known = [record.parameters for record in (*past.ended, *past.unfinished)]
        try:
            study.strategy.steer([point for point in points_in(study.space, points) if point not in known], limits)
        except ConfigurationError as error:
            note(f"hint ignored: {error}")


def _report_problems(study: OpenStudy, note: Callable[[str], None]) -> None:
    """Reports exceptions that the strategy has survived; those that an earlier call has recorded are not repeated."""
    if problems := study.strategy.problems():
        known = {event.detail for event in study.store.events(study.record.id) if event.kind == STRATEGY_FAILED}
        for problem in problems:
            if problem not in known:
                study.store.event(study.record.id, STRATEGY_FAILED, problem)
                note(f"strategy failed: {problem.partition(chr(10))[0]}")


def _extend(study: OpenStudy) -> None:
    """Writes an extended space.

    Raises:
        StudyOwnedError: A search runs the study, with the space that it had at its start.
    """
    if study.extension is not None and (owner := study.store.leases.read(study.record.id)) is not None:
        raise StudyOwnedError(
            f"{owner_as_text(owner)} runs the study with its present space",
            where="search.extend",
            cure="wait until that search has ended",
        )
    study.extend()


def _use_code(plan: Plan, study: OpenStudy) -> int:
    """Records the code of the plan, and that it has changed; returns its number."""
    code = code_record(plan, plan.read_code())
    if differences := changes(study.store, study.record.id, code):
        study.store.event(study.record.id, CODE_CHANGED, "; ".join(differences))
    return use_code(study.store, study.record.id, code)


def _record_end(study: OpenStudy, why: str) -> None:
    """Records that the study is finished, unless this is known from its trials and events."""
    if not is_finished(study.store, study.record):
        study.store.event(study.record.id, STUDY_FINISHED, why)


def _record_results(url: str, name: str | None, results: Sequence[ExternalResult]) -> str:
    """Returns the name of the study."""
    with Store.open(url) as store:
        study = read_record(store, name)
        numbers = [result.number for result in results]
        trials = {trial.number: trial for trial in store.trials(study.id, numbers=numbers)}
        latest = {attempt.number: attempt for attempt in store.attempts(study.id, numbers)}
        n_folds = number_of_folds(study.configuration)
        for result in results:
            _check_given_out(result, trials, latest, study, store)
        finished = [
            finish(trials[result.number], result, study.figures_of_merit, n_folds)
            for result in results
            if result.lost is None
        ]
        lost = [
            GivenBack(result.number, trials[result.number].attempts, result.lost)
            for result in results
            if result.lost is not None
        ]
        store.finish(study.id, finished, lost)
        return study.name


def _study_and_front(url: str, name: str) -> tuple[StudyRecord, list[TrialRecord]]:
    with Store.open(url, read_only=True) as store:
        study = read_record(store, name)
        return study, sorted_front(store.front(study.id), study.figures_of_merit)


def _check_given_out(
    result: ExternalResult,
    trials: Mapping[int, TrialRecord],
    latest: Mapping[int, AttemptRecord],
    study: StudyRecord,
    store: Store,
) -> None:
    """Verifies that `ask` has given out the trial and that it is still running.

    Raises:
        StoreError: The result belongs to another study; the trial does not exist, has finished, is queued, belongs to
            a search, or runs in another attempt.
    """
    where, number, trial = f"study {study.name}", result.number, trials.get(result.number)
    if result.study not in (None, study.name):
        problem = f"the result of trial {number} belongs to the study {result.study!r}, not to {study.name!r}"
        raise StoreError(problem, where=where, cure=f"name its store and study: --store URL --study {result.study}")
    details = f"mpi-opt results --study {study.name} --trial {number}"
    if trial is None:
        raise no_such_trial(study, number)
    if trial.state in FINISHED:
        raise StoreError(f"trial {number} has already finished: {trial.state}", where=where, cure=f"see {details}")
    if trial.state == "queued":
        cure = "discard this result: mpi-opt ask or the next search runs the trial again"
        raise StoreError(f"trial {number} is queued: no program runs it", where=where, cure=cure)
    attempt, owner = latest[number], store.leases.read(study.id)
    if attempt.ranks != EXTERNAL_RANKS:
        search = "a search that has ended" if owner is None else f"the search of {owner_as_text(owner)}"
        problem = f"trial {number} belongs to {search}: block {attempt.block}, ranks {attempt.ranks} on {attempt.hosts}"
        cure = f"report only trials that mpi-opt ask has printed; see {details}"
        raise StudyOwnedError(problem, where=where, cure=cure)
    if result.attempt not in (None, trial.attempts):  # a slow batch job may report a trial that another one runs again
        fate = "was given up" if result.attempt < trial.attempts else "has not been given out yet"
        problem = f"attempt {result.attempt} of trial {number} {fate}; attempt {trial.attempts} is running"
        raise StoreError(problem, where=where, cure=f"discard this result, or see {details}")
    given = result.parameters or {}
    if any(trial.parameters.get(key, ...) != value for key, value in given.items()):
        problem = f"the result is of {given}, and trial {number} has {trial.parameters}"
        raise StoreError(
            problem, where=where, cure="report each result with the number that ask printed with its values"
        )


def finish(trial: TrialRecord, result: ExternalResult, figures_of_merit: FiguresOfMerit, n_folds: int) -> Attempt:
    """A result as the outcome of its trial.

    Raises:
        ConfigurationError: The number of values is not the study's number of figures of merit.
    """
    duration_s = _seconds_since(trial.started_at)
    values = _read(result, "value", figures_of_merit)
    uncertainties = _read(result, "uncertainty", figures_of_merit)
    if not values:
        outcome = Outcome(trial.number, "failed", duration_s=duration_s, error=result.failed)
    else:
        figures = Figures({name: Measured(value, uncertainties.get(name)) for name, value in values.items()})
        folds = [Outcome(trial.number, "complete", figures, duration_s)] if n_folds == 1 else []
        outcome = Outcome(trial.number, "complete", figures, duration_s, folds)
    return Attempt(trial.proposal, trial.attempts, EXTERNAL_BLOCK, EXTERNAL_RANKS, outcome=outcome)


def _read(result: ExternalResult, key: Literal["value", "uncertainty"], figures_of_merit: FiguresOfMerit) -> Figures:
    """The figures of merit, or their uncertainties; empty without a value."""
    value = getattr(result, key)
    try:
        return Figures() if value is None else figures_of_merit.read(value)
    except (TypeError, ValueError):
        names = figures_of_merit.names
        wanted = f"{len(names)} numbers: {', '.join(names)}" if len(names) > 1 else "one number"
        example = f"[{', '.join(['0.1'] * len(names))}]" if len(names) > 1 else "0.1"
        raise ConfigurationError(
            f"{key}: expected {wanted}; found {value!r}",
            where=f"trial {result.number}",
            cure=f'write "{key}": {example}',
        ) from None


def _as_json_object(proposal: Proposal, attempt: int, study: StudyRecord) -> dict[str, Any]:
    """A proposal as a JSON object."""
    described = {
        "number": proposal.number,
        "attempt": attempt,
        "parameters": proposal.parameters,
        "seed": trial_seed(study.seed, proposal.number),
        "study": study.name,
        "budget": proposal.budget,
        "resume_from": proposal.resume_from,
    }
    return {key: value for key, value in described.items() if value is not None}


def _seconds_since(started_at: str | None) -> float:
    if started_at is None:
        return 0.0
    return max((datetime.now(UTC) - datetime.fromisoformat(started_at)).total_seconds(), 0.0)


def check_shared(url: str) -> None:
    """Verifies that the store remains after the end of this process.

    Raises:
        ConfigurationError: It is in memory.
    """
    if is_in_memory(parsed(url)):
        raise ConfigurationError(
            f"{url} is in memory: it is lost when this process ends", where="store", cure="write sqlite:///results.db"
        )


def retried(attempt: Callable[[], Answer]) -> Answer:
    """Returns the value of `attempt`, called again after conflicts with other processes for up to `RETRY_LIMIT_S`."""
    until = time.monotonic() + RETRY_LIMIT_S
    while True:
        try:
            return attempt()
        except (StoreNotReadyError, StoreConflictError):
            if time.monotonic() > until:
                raise
        time.sleep(random.uniform(0, PAUSE_S))  # after equal pauses, the same processes would meet again
