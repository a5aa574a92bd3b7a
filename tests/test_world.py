"""Worlds of ranks that are kept between programs, and programs that cannot run in one."""

from __future__ import annotations

import os

import pytest

from tests import world
from tests.hiding.sitecustomize import VARIABLE
from tests.optional_packages import needs
from tests.world import in_world

pytestmark = pytest.mark.mpi


def test_programs_on_the_same_ranks_share_nothing_but_the_processes(tmp_path):
    (tmp_path / "own.py").write_text(
        "import os\nprint(os.environ.get('WORD'), os.getcwd(), os.getpid())\nraise SystemExit(3)\n"
    )
    done = [in_world(2, "own.py", cwd=tmp_path, env=env) for env in ({"WORD": "here"}, {})]
    words = [[line.split() for line in one.stdout.splitlines()] for one in done]
    assert [one.returncode for one in done] == [3, 3]
    assert [[line[:2] for line in lines] for lines in words] == [
        [[word, str(tmp_path)]] * 2 for word in ("here", "None")
    ]
    assert {line[2] for line in words[0]} == {line[2] for line in words[1]}


@needs("pandas")
def test_ranks_that_stay_see_the_optional_packages_of_the_test(monkeypatch):
    statuses = []
    for hidden in (os.environ[VARIABLE], f"{os.environ[VARIABLE]},pandas", os.environ[VARIABLE]):
        monkeypatch.setenv(VARIABLE, hidden)
        statuses.append(in_world(1, "-c", "import pandas").returncode)
    assert statuses == [0, 1, 0]


def test_a_program_whose_ranks_wait_for_the_end_of_a_process_gets_processes(monkeypatch):
    monkeypatch.setattr(world, "LAST_S", 0.5)
    program = (
        "import os, time\nfrom mpi4py import MPI\n"
        "staying = 'tests.world_rank\\0' in open('/proc/self/cmdline').read()\n"
        "time.sleep(60 if staying and MPI.COMM_WORLD.rank else 0)\nprint('ended', staying)\n"
    )
    assert in_world(2, "-c", program).stdout.splitlines() == ["ended False"] * 2
    assert in_world(2, "-c", "print(1)").stdout.split() == ["1"] * 2


def test_the_ranks_of_small_worlds_stay_with_the_frameworks_that_they_have_loaded(monkeypatch):
    closed = []

    class Idle:
        def __init__(self, n):
            self.n = n

        def close(self):
            closed.append(self.n)

    monkeypatch.setattr(world, "_WORLDS", {(n, ()): Idle(n) for n in (1, 2, 9, 3)})
    world._make_room(4)
    assert closed == [9]
    world._make_room(10)
    assert closed == [9]
    world._make_room(14)
    assert closed == [9, 3, 2]
