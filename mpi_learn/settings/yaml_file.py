"""Reads and writes YAML 1.2."""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from typing import Any

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.suggestions import nearest_file

WIDTH = 100
"""The length of a line in characters."""


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file contains.

    Raises:
        ConfigurationError: The file cannot be read, is not valid YAML, or is not a mapping.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        near = nearest_file(path, "*.y*ml")
        reason = error.strerror or str(error)
        cure = f"did you mean {near}?" if near else "check the path, which is relative to the current directory"
        raise ConfigurationError(f"cannot read the file: {reason}", where=str(path), cure=cure) from error
    try:
        found = parsed(_decoded(content))
    except ConfigurationError as error:
        raise error.at(str(path)) from None
    if not isinstance(found, dict):
        cure = "write lines such as `epochs: 10`; mpi-opt new NAME writes an example"
        raise ConfigurationError(f"expected `key: value` lines, found {found!r:.60}", where=str(path), cure=cure)
    return found


def _decoded(content: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 or UTF-32 with a byte order mark, as YAML defines."""
    marks = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
             codecs.BOM_UTF16_BE: "utf-16"}  # fmt: skip
    encoding = next((name for mark, name in marks.items() if content.startswith(mark)), "utf-8-sig")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"the file is not in UTF-8: line {line} has the byte 0x{content[error.start]:02x}",
            cure="save the file in UTF-8; iconv -f latin1 -t utf-8 converts it from Latin-1",
        ) from error


def parsed(text: str) -> Any:
    """The content of a YAML text.

    Raises:
        ConfigurationError: It is not valid YAML, or has a duplicate key.
    """
    from ruamel.yaml import YAML  # takes 0.1 s, and most processes read no file
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        is_duplicate = isinstance(error, DuplicateKeyError)
        cure = "keep one of them" if is_duplicate else "check the indentation, brackets and quotes there"
        raise ConfigurationError(f"this is not YAML: {place}{problem or error}", cure=cure) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # impossible dates and numbers, tags that do not fit, keys that are lists, too many brackets
        cure = "put a text in quotes; nest fewer brackets"
        raise ConfigurationError(f"this is not YAML: {error}", cure=cure) from error


def dumped(content: dict[str, Any]) -> str:
    """`content` as a YAML text, with innermost lists and mappings on one line."""
    from ruamel.yaml import YAML

    yaml, stream = YAML(typ="safe", pure=True), io.StringIO()
    yaml.default_flow_style = None
    yaml.width = WIDTH
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # its stub knows only the default, None
    yaml.dump(content, stream)
    return stream.getvalue()
