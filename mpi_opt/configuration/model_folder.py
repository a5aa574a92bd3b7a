"""The folder in which a search keeps models of its trials: beside a store in a file, else beside the ``space.yaml``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mpi_learn.settings.paths import file_name


@dataclass(frozen=True)
class ModelFolder:
    """The folder of the models of one or several studies.

    Attributes:
        path: Its path.
    """

    path: Path

    @classmethod
    def of(cls, store: str, study: str, directory: Path) -> ModelFolder:
        """The folder of a study.

        Args:
            store: The URL of the store, or the path of its file.
            study: The name of the study.
            directory: The folder of the ``space.yaml``, for a store that is not a file.
        """
        file = store.removeprefix("sqlite:///").partition("?")[0]
        if "://" in file or not file:
            return cls(directory / f"{file_name(study)}.models")
        return cls(Path(file).absolute().with_suffix(".models"))

    def of_trial(self, study: str, number: int) -> Path:
        """The folder of a trial, which has one folder for each fold; `study` is the key of ``Trial.study``."""
        return self.path / study / f"trial-{number:05d}"

    def of_fold(self, study: str, number: int, fold: int) -> Path:
        """The folder of a fold: a model, its ``training.yaml`` and its history."""
        return self.of_trial(study, number) / f"fold-{fold}"

    def folds(self, study: str, number: int) -> list[Path]:
        """The folders of the folds of a trial that are complete, by number of the fold."""
        found = self.of_trial(study, number).glob("fold-*")
        return sorted(found, key=lambda folder: int(folder.name.removeprefix("fold-")))

    def numbers(self, study: str) -> set[int]:
        """The numbers of the trials that have a folder."""
        names = [folder.name for folder in (self.path / study).glob("trial-*")]
        return {int(name.removeprefix("trial-")) for name in names if re.fullmatch(r"trial-\d+", name)}

    def remove(self, study: str, numbers: Iterable[int]) -> None:
        """Removes the models of trials."""
        for number in numbers:
            shutil.rmtree(self.of_trial(study, number), ignore_errors=True)
