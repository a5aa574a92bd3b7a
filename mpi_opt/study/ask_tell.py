"""A study whose trials other programs run: a batch or workload system asks for trials and reports their results.

Each call is a process of its own, which opens the study, answers and ends. When several processes write at once, the
database accepts one of them; the others read the study again and retry. So no trial is given out twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field

from mpi_learn.settings.yaml_file import validated
from mpi_opt.configuration.sections import Section
from mpi_opt.core.cross_validation import number_of_folds
from mpi_opt.core.trial import FINISHED, FoldOutcome, Outcome, Proposal, TrialRecord, trial_seed
from mpi_opt.errors import ConfigurationError, StoreError
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreConflictError, StoreNotReadyError, StudyOwnedError
from mpi_opt.store.records import Finish, Start
from mpi_opt.study.lease import described
from mpi_opt.study.open_study import OUTSIDE, Past, open_study, proposal_of
from mpi_opt.study.study import Study

if TYPE_CHECKING:
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.core.figures_of_merit import Merits
    from mpi_opt.store.records import AttemptRecord

BLOCK = 0
"""The value of ``attempts.block`` in the store for a trial that a workload system runs."""

PATIENCE_S = 60.0
"""How long to wait for other processes that write to the store, in seconds."""

PAUSE_S = 0.2
"""The longest pause before a retry, in seconds; drawn at random, so that many processes do not retry at once."""

Answer = TypeVar("Answer")
Figure = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Spread = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]


class Result(Section):
    """The result of a trial: a value, the reason why it has none, or the reason why it must run again."""

    number: int = Field(ge=0, strict=True, description="The trial.")
    attempt: int | None = Field(None, ge=1, strict=True, description="Its attempt, as `ask` printed it.")
    value: Figure | list[Figure] | dict[str, Figure] | None = Field(
        None, description="The figure of merit; of several a list, or each by its name."
    )
    uncertainty: Spread | list[Spread] | dict[str, Spread] | None = Field(
        None, description="Standard deviation of the value, in the same form."
    )
    failed: str | None = Field(None, min_length=1, description="Why there is no value.")
    lost: str | None = Field(None, min_length=1, description="Why the trial has not ended and must run again.")


def ask(plan: Plan, count: int) -> list[dict[str, Any]]:
    """Takes at most `count` trials of a study, which are running from now on.

    Trials that an interrupted search left in the queue come first. Fewer trials or none are returned when all of
    ``search.trials`` have been given out, the target is reached, or the strategy waits for results.

    Args:
        plan: The study, which is created if the store does not have it.
        count: How many trials are wanted.

    Returns:
        ``number``, ``attempt``, ``parameters``, ``seed``, ``study`` of each; ``budget`` and ``resume_from`` if the
        strategy sets them.

    Raises:
        UserError: The study was begun with another space, or the store or the strategy cannot be used.
    """
    _check_shared(plan.configuration.store)
    return [_described(proposal, attempt, plan) for proposal, attempt in _patiently(lambda: _taken(plan, count))]


def tell(url: str, read: Callable[[Store], Study], results: Sequence[Result]) -> Study:
    """Records the results of trials that `ask` gave out: all of `results`, or, if it raises, none.

    Args:
        url: The store.
        read: Finds the study in it; need not read its trials.
        results: At most one for each trial.

    Returns:
        The study afterwards; with its trials only if it has several figures of merit.

    Raises:
        UserError: There is no such store, study or trial, or a trial has finished or is run by a search.
    """
    Store.open(url, read_only=True).close()  # `ask` has created it: a wrong name must not create another one
    return _patiently(lambda: _recorded(url, read, results))


def read_results(content: object, study: str | None = None) -> list[Result]:
    """One result or a list of results, as JSON values; they may contain the keys of the proposal.

    Args:
        content: ``{"number": 3, "value": 0.1}`` or a list of such objects.
        study: The expected value of their ``study``, if they have one.

    Raises:
        ConfigurationError: Names the wrong result and key.
    """
    entries = content if isinstance(content, list) else [content]
    results = [_read_result(entry, f"result {index + 1}", study) for index, entry in enumerate(entries)]
    seen: set[int] = set()
    for number in (result.number for result in results):
        if number in seen:
            raise ConfigurationError(
                f"trial {number} has two results", where="tell", cure="give one result for each trial"
            )
        seen.add(number)
    return results


def _read_result(entry: object, where: str, study: str | None) -> Result:
    if not isinstance(entry, dict):
        raise ConfigurationError(
            f"expected an object, found {entry!r}", where=where, cure='write {"number": 3, "value": 0.1}'
        )
    proposed = ("parameters", "seed", "study", "budget", "resume_from")  # keys of a proposal that are no result's
    result = validated(Result, {key: value for key, value in entry.items() if key not in proposed}, where)
    if study is not None and entry.get("study", study) != study:
        raise ConfigurationError(
            f"it belongs to the study {entry['study']!r}, not to {study!r}",
            where=where,
            cure=f"give it with --study {entry['study']}",
        )
    if sum(one is not None for one in (result.value, result.failed, result.lost)) != 1:
        raise ConfigurationError(
            "expected a value, why the trial failed, or why it was lost",
            where=where,
            cure='write one of "value": 0.1, "failed": "why" and "lost": "why"',
        )
    if result.value is None and result.uncertainty is not None:
        raise ConfigurationError(
            "a trial without a value has no uncertainty", where=where, cure='take "uncertainty" out, or add "value"'
        )
    return result


def _taken(plan: Plan, count: int) -> list[tuple[Proposal, int]]:
    """The next trials, entered as running, with the numbers of their attempts."""
    rules = plan.rules
    with open_study(plan, at_once=True) as study:
        past = Past.read(study.store, study.record.id, rules.merits, plan.configuration.folds.number)
        if any(rules.is_reached(record) for record in past.ended):
            return []
        past.teach(study.strategy)
        queued = [record for record in past.unfinished if record.state == "queued"][:count]
        n_new = min(count - len(queued), rules.trials - len(past))
        trials = [(proposal_of(record), record.attempts + 1) for record in queued]
        trials += [(proposal, 1) for proposal in (study.strategy.ask(n_new) if n_new > 0 else [])]
        if trials:
            study.store.start(study.record.id, [_start(proposal, attempt) for proposal, attempt in trials])
    return trials


def _recorded(url: str, read: Callable[[Store], Study], results: Sequence[Result]) -> Study:
    with Store.open(url) as store:
        study = read(store)
        numbers = [result.number for result in results]
        trials = {trial.number: trial for trial in store.trials(study.record.id, numbers=numbers)}
        latest = {one.number: one for one in store.attempts(study.record.id, numbers)}
        n_folds = number_of_folds(study.configuration)
        for result in results:
            _check_given_out(result, trials, latest, study, store)
        finished = [_finish(trials[one.number], one, study.merits, n_folds) for one in results if one.lost is None]
        store.finish(study.record.id, finished, {one.number: one.lost for one in results if one.lost is not None})
        return Study.read(store, study.name, trials=study.merits.are_several)


def _check_given_out(
    result: Result,
    trials: Mapping[int, TrialRecord],
    latest: Mapping[int, AttemptRecord],
    study: Study,
    store: Store,
) -> None:
    """Whether `ask` has given the trial out and it is still running.

    Raises:
        StoreError: There is no such trial, it has finished, it is queued, or a search runs it.
    """
    where, number, trial = f"study {study.name}", result.number, trials.get(result.number)
    details = f"mpi-opt results --study {study.name} --trial {number}"
    if trial is None:
        n_trials = sum(study.record.counts.values())
        cure = f"its trials are 0 to {n_trials - 1}" if n_trials else "it has none yet: mpi-opt ask"
        raise StoreError(f"there is no trial {number}", where=where, cure=cure)
    if trial.state in FINISHED:
        raise StoreError(f"trial {number} has finished before: {trial.state}", where=where, cure=f"see {details}")
    if trial.state == "queued":
        cure = "drop this result: mpi-opt ask or the next search gives the trial to another program"
        raise StoreError(f"trial {number} is queued: no program runs it", where=where, cure=cure)
    attempt, owner = latest[number], store.leases.read(study.record.id)
    if attempt.ranks != OUTSIDE:
        search = "a search that has ended" if owner is None else f"the search of {described(owner)}"
        problem = f"trial {number} belongs to {search}: block {attempt.block}, ranks {attempt.ranks} on {attempt.hosts}"
        cure = f"give results only of trials that mpi-opt ask has printed; see {details}"
        raise StudyOwnedError(problem, where=where, cure=cure)
    if result.attempt not in (None, trial.attempts):
        problem = f"attempt {result.attempt} of trial {number} was given up; attempt {trial.attempts} is running"
        raise StoreError(problem, where=where, cure=f"drop this result, or see {details}")


def _finish(trial: TrialRecord, result: Result, merits: Merits, n_folds: int) -> Finish:
    """A result as the outcome of its trial.

    Raises:
        ConfigurationError: The number of values is not the study's number of figures of merit.
    """
    duration_s = _seconds_since(trial.started_at)
    figures, spreads = _read(result, result.value, merits), _read(result, result.uncertainty, merits)
    folds = []
    if figures is not None and n_folds == 1:
        folds = [FoldOutcome(0, figures[0], duration_s, figures_of_merit=merits.by_name(figures))]
    outcome = Outcome(
        number=trial.number,
        state="failed" if figures is None else "complete",
        figure_of_merit=figures and figures[0],
        uncertainty=spreads and spreads[0],
        duration_s=duration_s,
        folds=folds,
        error=result.failed,
        figures_of_merit=merits.by_name(figures) if figures else {},
        uncertainties=merits.by_name(spreads) if spreads else {},
    )
    return Finish(outcome, trial.attempts, BLOCK)


def _read(result: Result, value: Any, merits: Merits) -> tuple[float, ...] | None:
    try:
        return None if value is None else merits.read(value)
    except (TypeError, ValueError):
        wanted = f"{len(merits.names)} numbers: {', '.join(merits.names)}" if merits.are_several else "one number"
        cure = f'write "value": [{", ".join(["0.1"] * len(merits.names))}]' if merits.are_several else ""
        raise ConfigurationError(
            f"expected {wanted}; found {value!r}", where=f"trial {result.number}", cure=cure or 'write "value": 0.1'
        ) from None


def _start(proposal: Proposal, attempt: int) -> Start:
    return Start(
        number=proposal.number,
        parameters=proposal.parameters,
        attempt=attempt,
        block=BLOCK,
        ranks=OUTSIDE,
        hosts="",
        budget=proposal.budget,
        resume_from=proposal.resume_from,
    )


def _described(proposal: Proposal, attempt: int, plan: Plan) -> dict[str, Any]:
    """A proposal as a JSON object."""
    configuration = plan.configuration
    described = {
        "number": proposal.number,
        "attempt": attempt,
        "parameters": proposal.parameters,
        "seed": trial_seed(configuration.search.seed, proposal.number),
        "study": configuration.study,
        "budget": proposal.budget,
        "resume_from": proposal.resume_from,
    }
    return {key: value for key, value in described.items() if value is not None}


def _seconds_since(started_at: str | None) -> float:
    if started_at is None:
        return 0.0
    return max((datetime.now(UTC) - datetime.fromisoformat(started_at)).total_seconds(), 0.0)


def _check_shared(url: str) -> None:
    if ":memory:" in url or url.rstrip("/") == "sqlite:":
        raise ConfigurationError(
            f"{url} is in memory: it ends with this process", where="store", cure="write sqlite:///results.db"
        )


def _patiently(attempt: Callable[[], Answer]) -> Answer:
    """The return value of `attempt`, which is repeated while other processes write to the store."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return attempt()
        except (StoreNotReadyError, StoreConflictError):
            if time.monotonic() > until:
                raise
        time.sleep(random.uniform(0, PAUSE_S))
