"""Sentences about trials of one study that were trained for different numbers of epochs, as by `halving`."""

from __future__ import annotations

from mpi_opt.core.counted import counted, plural
from mpi_opt.core.figures_of_merit import IN_STAGES, epochs
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store.records import StudyRecord


def training_length_notes(study: StudyRecord, best_figure: TrialRecord | None) -> list[str]:
    """Sentences, at most two, if the best trial of a study, or one with a better figure of merit, is a short training.

    Args:
        study: The study.
        best_figure: The complete trial with the best figure of merit, whatever its epochs.
    """
    best = study.best
    if best is None or study.strategy in IN_STAGES:
        return []
    found, full = [], _full_epochs(study)
    # there is no second sentence for several figures of merit: each of them may have another best trial
    if study.figures_of_merit.are_several:
        is_short = full is not None and epochs(best.budget) < full
        return [f"trial {best.number} was trained for {_shown(best.budget)} of {full:g}"] if is_short else []
    if full is not None and epochs(best.budget) < full:
        found.append(f"no trial was trained for all {full:g} epochs; trial {best.number} for {_shown(best.budget)}")
    if best_figure is not None and epochs(best_figure.budget) < epochs(best.budget):
        most = "all epochs" if best.budget is None else _shown(best.budget)
        found.append(
            f"trial {best_figure.number} has {best_figure.figure_of_merit:.6g}, but was trained for "
            f"{_shown(best_figure.budget)} only; the best trial with {most} is trial {best.number}: "
            f"{best.figure_of_merit:.6g}"
        )
    return found


def _shown(budget: float | None) -> str:
    assert budget is not None, "a trial without a budget is the longest one"
    return counted(int(budget), "epoch") if float(budget).is_integer() else f"{budget:g} {plural('epoch', 2)}"


def budget_text(study: StudyRecord, trial: TrialRecord) -> str | None:
    """``3 of 27 epochs``; None if the strategy has not set the epochs of the trial."""
    if trial.budget is None:
        return None
    full = _full_epochs(study)
    return (
        _shown(trial.budget) if full is None or study.strategy in IN_STAGES else f"{trial.budget:g} of {full:g} epochs"
    )


def _full_epochs(study: StudyRecord) -> float | None:
    """The epochs of a full training; None if the configuration does not tell."""
    options = study.configuration.get("search", {}).get("options", {})
    training = study.configuration.get("training")
    wanted = options.get("max_budget") or (training or {}).get("epochs")
    if wanted is None and study.strategy == "halving" and training is None:
        from mpi_opt.strategies.halving import HalvingOptions

        wanted = HalvingOptions().max_budget
    try:
        return None if wanted is None else float(wanted)
    except (TypeError, ValueError):  # a hyperparameter sets them
        return None
