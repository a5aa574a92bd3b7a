"""The traceback of an exception for the user: from the first line of the user's own code, if there is one."""

from __future__ import annotations

import traceback
from pathlib import Path

from mpi_learn.settings.user_files import OWN_PACKAGES, is_local

_OWN_FOLDERS = tuple(str(Path(__file__).resolve().parents[2] / package) for package in OWN_PACKAGES)


def user_traceback(error: BaseException) -> str:
    """The traceback without the calls that lead to the user's code. Complete if no line of the user is in it."""
    whole = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    waiting: list[traceback.TracebackException | None] = [whole]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            first = next((place for place, frame in enumerate(one.stack) if _is_of_user(frame.filename)), 0)
            del one.stack[:first]
            waiting += [one.__cause__, one.__context__]
    return "".join(whole.format())


def cure_at_line(cure: str, error: BaseException) -> str:
    """`cure`, and the last line of the user's own code in the traceback of `error`, if there is one."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_user(frame.filename)]
    return f"{cure} (raised in {Path(own[-1].filename).name}, line {own[-1].lineno})" if own else cure


def _is_of_user(file: str) -> bool:
    return not file.startswith(("<frozen ", *_OWN_FOLDERS)) and is_local(file)
