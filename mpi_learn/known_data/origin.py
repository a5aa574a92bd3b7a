"""The original files of a data set: in a folder, at a URL, or at their place of publication."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpi_learn.errors import DataError
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
