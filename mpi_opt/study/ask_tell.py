"""A study driven from outside, by a batch or workload system that asks for trials, runs them and tells the results.

Each call is a process of its own: it takes the study up from the store, as a search does that goes on, and leaves. Of
processes that write at once the database lets one through; the others look again, and so no trial is given out twice.
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
from mpi_opt.core.limits import Rules
from mpi_opt.core.trial import FINISHED, FoldOutcome, Outcome, Proposal, TrialRecord, trial_seed
from mpi_opt.errors import ConfigurationError, StoreError
from mpi_opt.store import Store
from mpi_opt.store.errors import TWICE, StoreNotReadyError
from mpi_opt.store.records import Finish, Start
from mpi_opt.strategies import REFITTING
from mpi_opt.study.open_study import OUTSIDE, Past, new_strategy, opened_study, proposal_of
from mpi_opt.study.study import Study

if TYPE_CHECKING:
    from mpi_opt.configuration.configuration import StudyConfiguration
    from mpi_opt.core.figures_of_merit import Merits

BLOCK = 0
"""What stands in the store instead of a block."""

PATIENCE_S = 60.0
"""How long others that write to the store are waited for, in seconds."""

PAUSE_S = 0.2
"""The longest pause before the store is tried again, in seconds; at random, so that many do not come back at once."""

AT_ONCE = {"await_refit_up_to": 10**9}
"""Of a strategy that refits: this process ends when it has answered, and would never see what is prepared beside."""

Answer = TypeVar("Answer")
Figure = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Spread = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]


class Result(Section):
    """What came of a trial: a value, why there is none, or why it must be run again."""

    number: int = Field(ge=0, strict=True, description="The trial.")
    value: Figure | list[Figure] | dict[str, Figure] | None = Field(
        None, description="The figure of merit; of several a list, or each by its name."
    )
    uncertainty: Spread | list[Spread] | dict[str, Spread] | None = Field(None, description="Of the value; likewise.")
    failed: str | None = Field(None, min_length=1, description="Why there is no value.")
    lost: str | None = Field(None, min_length=1, description="Why the trial has not ended and must be run again.")


def ask(configuration: StudyConfiguration, content: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Takes at most `count` trials of a study, which are running from now on.

    Trials that an interrupted search left queued come first. Fewer or none come when ``search.trials`` have been given
    out, the target is reached, or the strategy must be told more first.

    Args:
        configuration: The study, begun here if the store does not have it.
        content: What the store keeps as its configuration.
        count: How many trials are wanted.

    Returns:
        ``number``, ``parameters``, ``seed``, ``study`` of each; ``budget`` and ``resume_from`` where the strategy gives
        them.

    Raises:
        UserError: The study was begun with another space, the store or the strategy cannot be.
    """
    _check_shared(configuration.store)
    proposals = _patiently(lambda: _taken(configuration, content, count))
    return [_described(proposal, configuration) for proposal in proposals]


def tell(url: str, read: Callable[[Store], Study], results: Sequence[Result]) -> Study:
    """Records what came of trials: all of `results`, or, raising, none.

    Args:
        url: The store.
        read: Finds the study in it.
        results: At most one for each trial.

    Returns:
        The study as it is now.

    Raises:
        UserError: There is no such store, study or trial, or a trial has finished before.
    """
    Store.open(url, read_only=True).close()  # whoever tells has asked before: make no new store of a wrong name
    return _patiently(lambda: _told(url, read, results))


def read_results(content: object, study: str | None = None) -> list[Result]:
    """One result or a list of them, as JSON knows them; the keys of the proposal may still stand there.

    Args:
        content: ``{"number": 3, "value": 0.1}`` or a list of such.
        study: What their ``study`` must be, where they say one.

    Raises:
        ConfigurationError: Names what is wrong with which of them.
    """
    entries = content if isinstance(content, list) else [content]
    results = [_read_result(entry, f"result {index + 1}", study) for index, entry in enumerate(entries)]
    seen: set[int] = set()
    for number in (result.number for result in results):
        if number in seen:
            raise ConfigurationError(
                f"trial {number} is told twice", where="tell", cure="tell one result of each trial"
            )
        seen.add(number)
    return results


def _read_result(entry: object, where: str, study: str | None) -> Result:
    if not isinstance(entry, dict):
        raise ConfigurationError(
            f"expected an object, found {entry!r}", where=where, cure='write {"number": 3, "value": 0.1}'
        )
    proposed = ("parameters", "seed", "study", "budget", "resume_from")
    result = validated(Result, {key: value for key, value in entry.items() if key not in proposed}, where)
    if study is not None and entry.get("study", study) != study:
        raise ConfigurationError(f"it is of the study {entry['study']!r}, not of {study!r}", where=where)
    if sum(one is not None for one in (result.value, result.failed, result.lost)) != 1:
        raise ConfigurationError(
            "expected a value, why the trial failed, or why it was lost",
            where=where,
            cure='write "value": 0.1, "failed": "why" or "lost": "why"',
        )
    if result.value is None and result.uncertainty is not None:
        raise ConfigurationError("a trial without a value has no uncertainty", where=where)
    return result


def _taken(configuration: StudyConfiguration, content: Mapping[str, Any], count: int) -> list[Proposal]:
    """The next trials, entered as running."""
    wanted, space = configuration.search, configuration.dimensions()
    merits = configuration.merits()
    rules = Rules(wanted.trials, configuration.target(), merits)
    with Store.open(configuration.store) as store:
        study = opened_study(store, configuration, content, space)
        options = AT_ONCE | wanted.options if wanted.strategy in REFITTING else wanted.options
        strategy = new_strategy(configuration, space, options, store, study)
        past = Past.read(store, study.id, merits)
        if any(rules.is_reached(record) for record in past.ended):
            return []
        past.teach(strategy)
        queued = [record for record in past.unfinished if record.state == "queued"][:count]
        n_new = min(count - len(queued), wanted.trials - len(past))
        trials = [(proposal_of(record), record.attempts + 1) for record in queued]
        trials += [(proposal, 1) for proposal in (strategy.ask(n_new) if n_new > 0 else [])]
        if trials:
            store.start(study.id, [_start(proposal, attempt) for proposal, attempt in trials])
    return [proposal for proposal, _ in trials]


def _told(url: str, read: Callable[[Store], Study], results: Sequence[Result]) -> Study:
    with Store.open(url) as store:
        study = read(store)
        trials = {trial.number: trial for trial in study.trials}
        n_folds = number_of_folds(study.configuration)
        open_trials = [(_open_trial(trials, result.number, study), result) for result in results]
        ended = [(trial, result) for trial, result in open_trials if result.lost is None]
        finished = [_finish(trial, result, study.merits, n_folds) for trial, result in ended]
        for trial, result in open_trials:
            if result.lost is not None:
                store.requeue(study.record.id, [trial.number], result.lost)
        if finished:
            store.finish(study.record.id, finished)
        return Study.read(store, study.name)


def _open_trial(trials: Mapping[int, TrialRecord], number: int, study: Study) -> TrialRecord:
    """The trial of this number, which has not finished.

    Raises:
        StoreError: There is none, or it has.
    """
    where = f"study {study.name}"
    if number not in trials:
        cure = f"its trials are 0 to {max(trials)}" if trials else "it has none yet: mpi-opt ask"
        raise StoreError(f"there is no trial {number}", where=where, cure=cure)
    if trials[number].state in FINISHED:
        cure = f"what it gave: mpi-opt results --study {study.name} --trial {number}"
        raise StoreError(f"trial {number} has finished before: {trials[number].state}", where=where, cure=cure)
    return trials[number]


def _finish(trial: TrialRecord, result: Result, merits: Merits, n_folds: int) -> Finish:
    """What `result` says of `trial`.

    Raises:
        ConfigurationError: It has another number of values than the study has figures of merit.
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


def _described(proposal: Proposal, configuration: StudyConfiguration) -> dict[str, Any]:
    """A proposal as JSON."""
    described = {
        "number": proposal.number,
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
            f"{url} ends with this process, and with it the trials", where="store", cure="write sqlite:///results.db"
        )


def _patiently(attempt: Callable[[], Answer]) -> Answer:
    """What `attempt` gives as soon as nobody else writes the same or holds the store."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return attempt()
        except StoreError as error:
            if not (isinstance(error, StoreNotReadyError) or error.problem == TWICE) or time.monotonic() > until:
                raise
        time.sleep(random.uniform(0, PAUSE_S))
