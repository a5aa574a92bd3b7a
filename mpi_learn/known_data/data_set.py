"""What is known of a data set: the interface behind which each one is a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mpi_learn.known_data.origin import Origin, Original

Arrays = dict[str, np.ndarray]
"""Name in the file -> array; all have the same length."""


@dataclass(frozen=True)
class FileArray:
    """One array of a file that is written.

    Attributes:
        name: In the file.
        shape: As text; n is the number of samples.
        dtype: NumPy's name.
        unit: Of the values.
        meaning: In one phrase.
        columns: The names along the last axis, where they differ.
    """

    name: str
    shape: str
    dtype: str
    unit: str
    meaning: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Simulation:
    """Makes samples instead of reading them.

    Attributes:
        summary: What is simulated, in one sentence.
        method: How, with references.
        arrays: What is written.
        training: The `data` section of a training.yaml that reads it; ``{file}`` is replaced by the file's name.
        run: Called with the number of samples, the seed and options by name; yields blocks of samples.
        options: Names of the options that `run` takes.
    """

    summary: str
    method: str
    arrays: tuple[FileArray, ...]
    training: str
    run: Callable[..., Iterator[Arrays]]
    options: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """A data set that is known by name.

    Attributes:
        name: As users type it.
        summary: What it holds, in one line.
        source: Who made it, and where it is published.
        licence: What its makers allow.
        arrays: What is written.
        training: As in `Simulation`; ``{test}`` is replaced by the name of the second file.
        read: From the original files to the arrays of each file to write: ``""`` is the file that the user names,
            ``"_test"`` another one beside it.
        originals: The files to read; none if the data set needs no file.
        simulated_by: The program that made the events; "" for what was measured or photographed.
        folder: Where they are within a folder that holds several data sets.
        simulation: The simulator, if there is one.
    """

    name: str
    summary: str
    source: str
    licence: str
    arrays: tuple[FileArray, ...]
    training: str
    read: Callable[[Origin], Mapping[str, Arrays]]
    originals: tuple[Original, ...] = ()
    simulated_by: str = ""
    folder: str = ""
    simulation: Simulation | None = None
