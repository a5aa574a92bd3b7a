"""The traceback of an exception as the user reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import mpi_learn
from mpi_learn.settings.user_traceback import user_traceback

OWN = str(Path(mpi_learn.__file__).parent / "training" / "made_up.py")


def function(file: str, text: str) -> Callable[..., None]:
    """The function `f` of `text`, as if it were in `file`."""
    names: dict = {}
    exec(compile(text, file, "exec"), names)
    return names["f"]


CALLING = function(OWN, "def f(g):\n    g()")
FAILING = function(OWN, "def f():\n    {}['own']")


def test_traceback_begins_with_the_first_line_of_the_user(tmp_path):
    user = function(f"{tmp_path}/user.py", "import json\ndef f():\n    json.loads('{')")
    with pytest.raises(ValueError, match="Expecting property name") as caught:
        CALLING(user)
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # without this test, which is local code
    first, second, *_, last = user_traceback(caught.value).splitlines()
    assert first == "Traceback (most recent call last):" and f'"{tmp_path}/user.py", line 3, in f' in second
    assert last.startswith("json.decoder.JSONDecodeError")


def test_traceback_without_a_line_of_the_user_is_complete():
    with pytest.raises(KeyError) as caught:
        CALLING(FAILING)
    caught.value.__traceback__ = caught.value.__traceback__.tb_next
    assert user_traceback(caught.value).count(OWN) == 2


def test_traceback_of_a_cause_begins_with_the_first_line_of_the_user_as_well(tmp_path):
    text = "def f():\n    try:\n        call(fail)\n    except KeyError as error:\n        raise ValueError from error"
    user = function(f"{tmp_path}/user.py", text)
    user.__globals__.update(call=CALLING, fail=FAILING)
    with pytest.raises(ValueError) as caught:
        CALLING(user)
    caught.value.__traceback__ = caught.value.__traceback__.tb_next
    shown = user_traceback(caught.value)
    assert [line for line in shown.splitlines() if line.startswith("Traceback")] == [
        "Traceback (most recent call last):"
    ] * 2
    assert shown.count("line 5, in f") == shown.count("line 3, in f") == 1
