"""The folder in which a search keeps models of its trials: beside a store in a file, else beside the ``space.yaml``.

Workers write the models of an attempt to a hidden folder of this attempt, which rank 0 renames after it has committed
the outcome. A worker of a search that another one has replaced, or on a host that was given up, may write at any time:
it never changes the model that belongs to the figure of merit in the store.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Container, Iterable
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

    def of_attempt(self, study: str, number: int, attempt: int) -> Path:
        """The folder in which an attempt writes, with the same folders."""
        return self.path / study / f".trial-{number:05d}-attempt-{attempt}"

    def of_fold(self, study: str, number: int, fold: int, attempt: int) -> Path:
        """The folder in which an attempt writes a fold: a model, its ``training.yaml`` and its history."""
        return self.of_attempt(study, number, attempt) / f"fold-{fold}"

    def publish(self, study: str, number: int, attempt: int) -> str:
        """Makes the models of an attempt those of the trial; does nothing if that was done before.

        Returns:
            Why the file system refused it; empty otherwise. The next search of the study tries it again.
        """
        written, folder = self.of_attempt(study, number, attempt), self.of_trial(study, number)
        try:
            if written.is_dir():  # otherwise it was done before, or the training has no model
                shutil.rmtree(folder, ignore_errors=True)  # of an earlier version, whose workers wrote to it
                written.rename(folder)
        except OSError as error:
            return f"the model of trial {number} stays in {written}: {error.strerror}"
        return ""

    def folds(self, study: str, number: int) -> list[Path]:
        """The folders of the folds of a trial that are complete, by number of the fold."""
        found = self.of_trial(study, number).glob("fold-*")
        return sorted(found, key=lambda folder: int(folder.name.removeprefix("fold-")))

    def numbers(self, study: str) -> set[int]:
        """The numbers of the trials that have a folder."""
        names = [folder.name for folder in (self.path / study).glob("trial-*")]
        return {int(name.removeprefix("trial-")) for name in names if re.fullmatch(r"trial-\d+", name)}

    def written(self, study: str) -> set[tuple[int, int]]:
        """The attempts, as (number of the trial, attempt), that have written models which are not those of a trial."""
        names = [folder.name for folder in (self.path / study).glob(".trial-*")]
        found = [re.fullmatch(r"\.trial-(\d+)-attempt-(\d+)", name) for name in names]
        return {(int(one[1]), int(one[2])) for one in found if one}

    def remove(self, study: str, numbers: Iterable[int]) -> None:
        """Removes the models of trials."""
        for number in numbers:
            shutil.rmtree(self.of_trial(study, number), ignore_errors=True)

    def remove_attempt(self, study: str, number: int, attempt: int) -> None:
        """Removes what an attempt has written, unless it is the model of the trial."""
        shutil.rmtree(self.of_attempt(study, number, attempt), ignore_errors=True)

    def remove_written(self, study: str, numbers: Container[int]) -> None:
        """Removes what attempts of these trials have written, and what is not the model of a trial."""
        for number, attempt in self.written(study):
            if number in numbers:
                self.remove_attempt(study, number, attempt)
