"""The best trial of a study as a ``training.yaml`` or as hyperparameters, and the codes that trials ran with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpi_learn.settings.yaml_file import dumped
from mpi_opt.configuration.placeholders import filled_training
from mpi_opt.core.counted import plural
from mpi_opt.core.folds.fold_splits import number_of_folds
from mpi_opt.core.trial import TrialRecord, trial_seed
from mpi_opt.store.records import CodeRecord, StudyRecord, readable
from mpi_opt.study.presentation import cell, figures_as_text
from mpi_opt.study.user_code import differences
from mpi_opt.views.text.tables import schedule_text


def trial_yaml(
    study: StudyRecord, trials: Sequence[TrialRecord], *, is_elsewhere: bool = False, notes: Sequence[str] = ()
) -> str:
    """The training of a trial as the text of a ``training.yaml``; for a user's own objective the hyperparameters.

    With the seed of the trial, the training gives the figure of merit of the trial again, on as many ranks.

    Args:
        study: The study.
        trials: The trial, after those whose training it continues: a `lineage`.
        is_elsewhere: Whether the text will be in another folder than the ``space.yaml`` of the study: then files that
            it reads have absolute paths. Otherwise paths are unchanged, and a comment names the folder.
        notes: Sentences for comments.
    """
    trial = trials[-1]
    training, directory = study.training, study.configuration.get("directory")
    figures = ", ".join(map(" ".join, figures_as_text(trial, study)))
    lines = [f"# study {study.name}, trial {trial.number}: {figures}"]
    lines += [f"# {note}" for note in notes]
    lines += _differences(study, trials)
    if changes := schedule_text(trials):
        lines += ["# its hyperparameters changed during the training; the values below are the last ones:"]
        lines += [f"#   {line}" for line in changes.splitlines()]
    content = trial.parameters if training is None else _training(training, trial, study)
    if training and directory:
        if is_elsewhere:
            content = _with_absolute_paths(content, Path(directory))
        else:
            lines.append(f"# relative paths are relative to {directory}")
    text = dumped(content)
    if "***" in text:
        lines.append("# *** replaces a password, which is not in the store: write it again")
    return "\n".join([*(cell(line, None) for line in lines), text])


def _differences(study: StudyRecord, trials: Sequence[TrialRecord]) -> list[str]:
    """Comments on why the training of a file is another one than that of its trial."""
    seed, found = trial_seed(study.seed, trials[-1].number), []
    if study.configuration.get("training") is None:
        return [f"# seed of the trial: {seed}"]
    if (n_folds := number_of_folds(study.configuration)) > 1:
        has_validation = study.configuration["training"].get("data", {}).get("validation_fraction")
        samples = "all samples but those of validation_fraction" if has_validation else "all samples"
        found.append(f"# the trial has trained {n_folds} models, one for each fold; this is one on {samples}")
    if len(trials) > 1:
        others = f"{plural('trial', len(trials) - 1)} {', '.join(str(trial.number) for trial in trials[:-1])}"
        found.append(f"# the trial continues {others}, with other seeds; this is one training with one seed")
    full = study.configuration["training"].get("epochs")
    if trials[-1].budget is not None and trials[-1].budget != full:
        found.append(f"# the trial ended after these epochs; the configuration has epochs: {full}")
    return found


def _training(template: dict[str, Any], trial: TrialRecord, study: StudyRecord) -> dict[str, Any]:
    """The section ``training:`` with the hyperparameters and the seed of a trial; the keys of the model are first."""
    directory = study.configuration.get("directory")
    folder = None if directory is None else Path(directory)
    filled = filled_training(template, trial.parameters, folder, guess=True)
    data = filled.get("data")
    if isinstance(data, dict) and data.get("validation_fraction") is not None:  # all trials have the same samples
        filled["data"] = {"validation_seed": filled.get("seed", 0)} | data
    if trial.budget is not None:
        filled["epochs"] = max(1, round(trial.budget))
    filled["seed"] = trial_seed(study.seed, trial.number)
    return {key: filled[key] for key in ("model", "parameters") if key in filled} | filled


def _with_absolute_paths(content: dict[str, Any], directory: Path) -> dict[str, Any]:
    """`content` with absolute paths of the files that it reads; the paths of files that it writes stay relative."""
    from mpi_learn.data.files.finding import absolute_pattern
    from mpi_learn.settings.paths import expanded
    from mpi_learn.settings.user_code import absolute_specification

    def each(value: Any, locate: Callable[[str, Path], str]) -> Any:
        if isinstance(value, dict):
            return {key: each(item, locate) for key, item in value.items()}
        if isinstance(value, list):
            return [each(item, locate) for item in value]
        return locate(value, directory) if isinstance(value, str) else value

    # the printed file is used in another directory: it must find what the search has read, and write where it is
    named = ("model", "loss", "metrics", "weighted_metrics", "callbacks", "optimizer", "gan")
    found = {k: each(v, absolute_specification) if k in named else v for k, v in content.items()}
    if isinstance(checkpoint := found.get("checkpoint"), dict) and checkpoint.get("start_from"):
        found["checkpoint"] = checkpoint | {"start_from": str(directory / expanded(checkpoint["start_from"]))}
    data = found.get("data")
    if isinstance(data, dict):
        locate = dict.fromkeys(("train", "validation"), absolute_pattern)
        found["data"] = {k: each(v, locate.get(k, absolute_specification)) for k, v in data.items()}
    return found


def codes_text(codes: Sequence[CodeRecord]) -> str:
    """One line per code."""
    return "\n".join(f"  code {code.number}  {line}" for code, line in zip(codes, _lines(codes), strict=True))


def versions_text(code: CodeRecord) -> str:
    """The packages of a code with their versions."""
    return ", ".join(f"{name} {version}" for name, version in code.packages.items())


def _lines(codes: Sequence[CodeRecord]) -> list[str]:
    before = [None, *codes[:-1]]
    return [_line(code, last) for code, last in zip(codes, before, strict=True)]


def _line(code: CodeRecord, before: CodeRecord | None) -> str:
    commit = "" if code.git_commit is None else f", commit {code.git_commit[:10]}"
    changed = "" if before is None else f": {'; '.join(differences(before, code))}"
    return f"since {readable(code.since)}{commit}{changed}"
