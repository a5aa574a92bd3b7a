"""The winner of a study as something to go on with: a ready ``training.yaml``, or the hyperparameters of a function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mpi_opt.errors import ConfigurationError
from mpi_opt.space import Parameters

if TYPE_CHECKING:
    from mpi_opt.study import Study
    from mpi_opt.trial import TrialRecord


def winner_yaml(study: Study, trial: TrialRecord) -> str:
    """What `trial` trained, as the text of a ``training.yaml``; for a user's own objective, its hyperparameters.

    Relative paths in it stay relative to the folder of the study's ``space.yaml``, which the first line names.
    """
    training = study.configuration.get("training")
    directory = study.configuration.get("directory")
    merit = f"{study.configuration.get('figure_of_merit', 'figure of merit')} {_with_uncertainty(trial)}"
    lines = [f"# study {study.name}, trial {trial.number}: {merit}"]
    if training and directory:
        lines.append(f"# relative paths start in {directory}")
    content = trial.parameters if training is None else training_of(training, trial.parameters, directory)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
    return "\n".join([*(line.replace("\n", " ") for line in lines), text])


def training_of(training: dict[str, Any], parameters: Parameters, directory: str | None) -> dict[str, Any]:
    """The ``training:`` section with `parameters` filled in, and those that the model's function takes by name."""
    from mpi_opt.configuration import filled, references

    content = filled(training, parameters)
    referred = set(references(training))
    model = str(content.get("model", ""))
    named = {name: value for name, value in parameters.items() if _takes(model, name, name in referred, directory)}
    arguments = named | (content.get("parameters") or {})
    if not arguments:
        return content
    rest = {key: value for key, value in content.items() if key not in ("model", "parameters")}
    return {"model": content.get("model"), "parameters": arguments} | rest


def _takes(model: str, name: str, is_referred: bool, directory: str | None) -> bool:
    """Whether the model's function takes the hyperparameter; if it cannot be asked: whether nothing else does."""
    from mpi_learn.functions import is_function, signature_of

    if not is_function(model):
        return False
    try:
        signature = signature_of(model, None if directory is None else Path(directory))
    except ConfigurationError:  # the file has moved since
        return not is_referred
    return name in signature.names or (signature.accepts_any and not is_referred)


def _with_uncertainty(trial: TrialRecord) -> str:
    if trial.figure_of_merit is None:
        return "none"
    spread = "" if trial.uncertainty is None else f" ± {trial.uncertainty:.3g}"
    return f"{trial.figure_of_merit:.6g}{spread}"
