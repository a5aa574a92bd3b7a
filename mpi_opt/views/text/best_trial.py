"""The best trial of a study as a ready ``training.yaml``, or as the hyperparameters of a user's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpi_learn.settings.yaml_file import dumped
from mpi_opt.configuration.placeholders import filled_training
from mpi_opt.core.trial import TrialRecord
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.trial_table import cell, figures_as_text
from mpi_opt.views.series import main_figure_name
from mpi_opt.views.text.schedule import schedule_text


def trial_yaml(study: StudyRecord, trials: Sequence[TrialRecord], *, is_elsewhere: bool = False) -> str:
    """The training of a trial as the text of a ``training.yaml``; for a user's own objective the hyperparameters.

    Args:
        study: The study.
        trials: The trial, after those whose training it continues: a `lineage`.
        is_elsewhere: Whether the text will be in another folder than the ``space.yaml`` of the study: then files that
            it reads have absolute paths. Otherwise paths are unchanged, and a comment names the folder.
    """
    trial = trials[-1]
    training, directory = study.configuration.get("training"), study.configuration.get("directory")
    pairs = figures_as_text(trial, study.figures_of_merit, main_figure_name(study))
    figures = ", ".join(" ".join(pair) for pair in pairs)
    lines = [f"# study {study.name}, trial {trial.number}: {figures}"]
    if changes := schedule_text(trials):
        lines += ["# its hyperparameters changed during the training; the values below are the last ones:"]
        lines += [f"#   {line}" for line in changes.splitlines()]
    content = trial.parameters if training is None else _training(training, trial, directory)
    if training and directory:
        if is_elsewhere:
            content = _with_absolute_paths(content, Path(directory))
        else:
            lines.append(f"# relative paths are relative to {directory}")
    text = dumped(content)
    if "***" in text:
        lines.append("# *** replaces a password, which is not in the store: write it again")
    return "\n".join([*(cell(line, None) for line in lines), text])


def _training(template: dict[str, Any], trial: TrialRecord, directory: str | None) -> dict[str, Any]:
    """The section ``training:`` with the hyperparameters of a trial inserted; the keys of the model are first."""
    folder = None if directory is None else Path(directory)
    filled = filled_training(template, trial.parameters, folder, guess=True)
    return {key: filled[key] for key in ("model", "parameters") if key in filled} | filled


def _with_absolute_paths(content: dict[str, Any], directory: Path) -> dict[str, Any]:
    """`content` with absolute paths of the files that it reads; the paths of files that it writes stay relative."""
    from mpi_learn.data.files.location import absolute_pattern
    from mpi_learn.settings.paths import expanded
    from mpi_learn.settings.user_code import absolute_specification

    def each(value: Any, locate: Callable[[str, Path], str]) -> Any:
        if isinstance(value, dict):
            return {key: each(item, locate) for key, item in value.items()}
        if isinstance(value, list):
            return [each(item, locate) for item in value]
        return locate(value, directory) if isinstance(value, str) else value

    named = ("model", "loss", "metrics", "weighted_metrics", "callbacks", "optimizer", "gan")
    found = {k: each(v, absolute_specification) if k in named else v for k, v in content.items()}
    if isinstance(checkpoint := found.get("checkpoint"), dict) and checkpoint.get("start_from"):
        found["checkpoint"] = checkpoint | {"start_from": str(directory / expanded(checkpoint["start_from"]))}
    data = found.get("data")
    if isinstance(data, dict):
        locate = dict.fromkeys(("train", "validation"), absolute_pattern)
        found["data"] = {k: each(v, locate.get(k, absolute_specification)) for k, v in data.items()}
    return found
