"""The line before a search: which study, which store, how many trials exist and how many will run."""

from __future__ import annotations

from mpi_opt.configuration.plan import Plan
from mpi_opt.core.counted import counted, listed, plural
from mpi_opt.errors import without_passwords
from mpi_opt.store import Store
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.reading import EXTERNAL_RANKS


def n_to_run(plan: Plan, study: StudyRecord, store: Store) -> int:
    """The number of trials that the search will run at most: without those that a workload system runs.

    Trials that wait run even if `trials` has been lowered since they were proposed.
    """
    limits = plan.limits
    if limits.target is not None and any(map(limits.reaches_target, store.trials(study.id, ("complete",)))):
        return 0
    running = [trial.number for trial in store.trials(study.id, ("running",))]
    latest = {one.number: one.ranks for one in store.attempts(study.id, running)} if running else {}
    n_external = sum(ranks == EXTERNAL_RANKS for ranks in latest.values())
    n_waiting = study.n_trials - study.n_ended - n_external
    return max(n_waiting, limits.n_trials - study.n_ended - n_external, 0)


def announcement(plan: Plan, study: StudyRecord, n_new: int, missing: list[int], differences: list[str]) -> str:
    """One line, and a second one if the code of the study has changed.

    Args:
        plan: The plan of the search.
        study: The study before the search.
        n_new: The number of trials that will run, as of `n_to_run`.
        missing: The trials whose rows were deleted, as of `Store.missing`.
        differences: What differs from the code with which the study ran before.
    """
    which = f"study {study.name} in {without_passwords(plan.configuration.store)}"
    n_before, n_wanted = study.n_trials, plan.limits.n_trials
    if n_new == 0 and study.n_ended == n_before:
        text = f"{which} is finished: {counted(n_before, 'trial')}, none run"
    elif n_before == 0:
        text = f"{which}: new, {counted(n_new, 'trial')} will run; {plan.blocks_text}"
    else:
        ended = f"{study.n_ended} of {counted(n_wanted, 'trial')} finished before"
        text = f"{which}: {ended}, {n_new} will run; {plan.blocks_text}"
    if missing:
        are = "is" if len(missing) == 1 else "are"
        which = f"{plural('trial', len(missing))} {listed(missing)}"
        text += f"\n{which} {are} not in the store any more, because rows were deleted; other trials take the place"
    if not differences:
        return text
    what = "its trials ran with other code" if n_new == 0 else "it continues with changed code"
    return f"{text}\n{what}: {'; '.join(differences)}"
