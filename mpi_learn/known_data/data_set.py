"""The description of a known data set. Each data set is one module that defines a `DataSet`."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from mpi_learn.errors import ConfigurationError, DataError
from mpi_learn.settings.optional_packages import imported
from mpi_learn.settings.paths import expanded, is_file

TIMEOUT_S = 30


@dataclass(frozen=True)
class Original:
    """One original file of a data set.

    Attributes:
        name: The file name.
        urls: The addresses for the download, in the order of the attempts.
        md5: The MD5 sum of the file at `urls`; "" accepts any content.
    """

    name: str
    urls: tuple[str, ...] = ()
    md5: str = ""


@dataclass(frozen=True)
class Origin:
    """The location of the original files.

    Args:
        place: A folder, a single file, or a URL of either; None downloads from `Original.urls`.
        folder: The files may also be in this folder within `place`.
        originals: All files of the data set.
        published: The place of publication, for messages.
    """

    place: str | None
    folder: str
    originals: tuple[Original, ...]
    published: str

    def read(self, *names: str) -> tuple[str, bytes]:
        """The location and the content of the first existing file of `names`, decompressed if it is gzipped.

        Raises:
            DataError: None of the files exists, or the file cannot be read or is damaged.
        """
        if self.place is None:
            where, content = self._downloaded(names)
        elif "://" in self.place:
            where, content = self._behind_url(self.place.rstrip("/"), names)
        else:
            where, content = self._on_disk(expanded(self.place), names)
        return where, _unpacked(content, where)

    def _on_disk(self, place: Path, names: tuple[str, ...]) -> tuple[str, bytes]:
        paths = [folder / name for name in names for folder in (place, place / self.folder)]
        if is_file(place, DataError):
            paths = [place] if place.name in names else []
        for path in paths:
            if is_file(path, DataError):
                return str(path), _content(path)
        problem = f"found no {' or '.join(names)}" if place.exists() else "no such folder or file"
        raise DataError(problem, where=str(place), cure=f"--from names a folder with {self._needed(names)}")

    def _behind_url(self, place: str, names: tuple[str, ...]) -> tuple[str, bytes]:
        urls = [f"{folder}/{name}" for name in names for folder in (place, f"{place}/{self.folder}")]
        if place.rpartition("/")[2] in names:
            urls = [place]
        return self._first(dict.fromkeys(urls, ""), f"--from names a URL or a folder with {self._needed(names)}")

    def _downloaded(self, names: tuple[str, ...]) -> tuple[str, bytes]:
        by_hand = f"get {self._needed(names)} elsewhere ({self.published}), then --from FOLDER"
        known = {url: original.md5 for original in self.originals if original.name in names for url in original.urls}
        if not known:
            raise DataError(f"there is no known address of {names[0]}", cure=by_hand)
        return self._first(known, by_hand)

    def _first(self, md5: Mapping[str, str], cure: str) -> tuple[str, bytes]:
        """The first URL with a valid answer, and its content; `md5` maps each URL to the expected MD5 sum."""
        reasons = []
        for url, expected in md5.items():
            try:
                with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
                    content: bytes = response.read()
            except (OSError, ValueError, http.client.HTTPException) as error:
                reasons.append(f"{url}: {getattr(error, 'reason', error)}")
                continue
            if not expected or hashlib.md5(content, usedforsecurity=False).hexdigest() == expected:
                return url, content
            reasons.append(f"{url}: not the published file")
        raise DataError(f"cannot be downloaded ({'; '.join(reasons)})", cure=cure)

    def _needed(self, names: tuple[str, ...]) -> str:
        """A list of the original files for messages, as alternatives if `names` contains all of them."""
        every = [original.name for original in self.originals]
        return (" or " if set(every) <= set(names) else ", ").join(every)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"the file cannot be read: {error.strerror or error}",
            where=str(path),
            cure="get read permission" if isinstance(error, PermissionError) else "copy or download it again",
        ) from error


def _unpacked(content: bytes, where: str) -> bytes:
    if content[:2] != b"\x1f\x8b" or where.endswith(".tar.gz"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the file is damaged: {error}", where=where, cure="download it again") from error


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


def hdf5_arrays(content: bytes, where: str, *names: str) -> NamedArrays:
    """Datasets of an HDF5 file by name.

    Raises:
        DataError: The file is damaged, or a dataset is missing.
    """
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            missing = [name for name in names if not isinstance(file.get(name), h5py.Dataset)]
            if missing:
                raise DataError(f"there is no dataset {missing[0]}", where=where, cure="use the published file")
            return {name: file[name][()] for name in names}
    except OSError as error:
        raise DataError(f"not an HDF5 file, or damaged: {error}", where=where, cure="download it again") from error


def csv_columns(content: bytes, where: str, types: Mapping[str, str]) -> NamedArrays:
    """Columns of a CSV file with a header line.

    Args:
        types: Name of the column -> name of its type for pyarrow.

    Raises:
        DataError: A column is missing, or its values are not of its type.
    """
    reader = imported("pyarrow.csv", "parquet")
    options = reader.ConvertOptions(column_types=types, include_columns=list(types))
    try:
        table = reader.read_csv(io.BytesIO(content), convert_options=options)
    except KeyError as error:
        raise DataError(str(error.args[0]), where=where, cure="use the published file") from error
    except ValueError as error:
        raise DataError(f"the file is damaged: {error}", where=where, cure="download it again") from error
    return {name: table[name].to_numpy() for name in types}


def standardised(table: np.ndarray, undefined: float | None = None) -> np.ndarray:
    """Scales each column to mean 0 and standard deviation 1, float32. Values equal to `undefined` become 0."""
    values = table.astype(np.float64)
    if undefined is not None:
        values[values == undefined] = np.nan
    spread = np.nanstd(values, axis=0)
    scaled = (values - np.nanmean(values, axis=0)) / np.where(spread > 0, spread, 1)
    return np.asarray(np.nan_to_num(scaled), np.float32)
