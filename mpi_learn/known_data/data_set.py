"""The description of a known data set. Each data set is one module that defines a `DataSet`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mpi_learn.errors import ConfigurationError
from mpi_learn.known_data.origin import Origin, Original

NamedArrays = dict[str, np.ndarray]
"""Name in the file -> array; all have the same length."""


@dataclass(frozen=True)
class FileArray:
    """One array of an output file.

    Attributes:
        shape: The shape as text; n is the number of samples.
        dtype: The dtype by its NumPy name.
        unit: The unit; for pixels and classes, the range of the values.
        meaning: The quantity, in one phrase.
        columns: The names along the last axis, if its entries are different quantities.
    """

    name: str
    shape: str
    dtype: str
    unit: str
    meaning: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Simulation:
    """A simulator of samples.

    Attributes:
        summary: The simulated process, in one sentence.
        method: The method, with references.
        training: The `data` section of a training.yaml that reads it; ``{file}`` is replaced by the file's name.
        run: Called with the number of samples, the seed and options by name; yields blocks of samples.
        options: The names of the options of `run`.
        program: The program that simulates.
        package: Its distribution, of which the file has the version; "" for MPI Learn itself.
    """

    summary: str
    method: str
    arrays: tuple[FileArray, ...]
    training: str
    run: Callable[..., Iterator[NamedArrays]]
    options: tuple[str, ...]
    program: str
    package: str = ""


@dataclass(frozen=True)
class DataSet:
    """A known data set.

    Attributes:
        name: The name on the command line.
        summary: The content, in one line.
        source: The authors and the place of publication.
        training: As in `Simulation`; ``{test}`` is replaced by the name of the second file.
        read: Reads the original files and returns the arrays of each output file by suffix: ``""`` for the file that
            the user names, ``"_test"`` for the test samples.
        originals: The files to read; none if the data set needs no file.
        simulated_by: The program that generated the events; "" for measurements and photographs.
        folder: The subfolder of the original files in a folder with several data sets.
    """

    name: str
    summary: str
    source: str
    licence: str
    arrays: tuple[FileArray, ...]
    training: str
    read: Callable[[Origin], Mapping[str, NamedArrays]]
    originals: tuple[Original, ...] = ()
    simulated_by: str = ""
    folder: str = ""
    simulation: Simulation | None = None


def check_energy(energy: tuple[float, float], smallest: float, largest: float) -> None:
    """Raises ConfigurationError unless `energy` is an ordered pair from `smallest` to `largest` GeV."""
    low, high = energy
    if not smallest <= low <= high <= largest:
        raise ConfigurationError(
            f"expected LOW HIGH between {smallest:g} and {largest:g} GeV, found {low:g} {high:g}",
            where="--energy",
            cure=f"for example --energy {smallest:g} {largest:g}",
        )
