"""Names of files and folders of a study."""

from __future__ import annotations

import re


def file_name(study: str) -> str:
    """The name of a study without characters that a file name must not contain, and without dots at the beginning."""
    return re.sub(r"[/\0]|^\.+", "_", study)
