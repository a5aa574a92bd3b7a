"""A search measures the size of its blocks once; when it continues, it reads the size from the study."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.plan import Plan
from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.measuring import choose_size, run_measurement
from mpi_opt.errors import ConfigurationError
from mpi_opt.messages.messages import LeftBlock, Lost, Ready
from mpi_opt.store import Store
from mpi_opt.store.events import SIZE_MEASURED
from mpi_opt.study.opening.open_study import open_study
from tests.mpi_opt.test_measuring import MeasuredLink

NO_REQUEST = SimpleNamespace(signal_name=None)


def planned(folder: Path, n_ranks: int, n_trials: int = 1, batch_size=None, n_stages: int = 1) -> Plan:
    (folder / "model.py").write_text("def build(x):\n    pass\n")
    content = {
        "study": "sized",
        "store": f"sqlite:///{folder}/sized.db",
        "space": {"x": {"type": "integer", "low": 0, "high": 2}},
        "search": {"strategy": "random", "trials": n_trials},
        "blocks": {"size": "measured"},
        "training": {
            "model": "model.py:build",
            "data": {"train": ["a.h5"], "features": "X", "labels": "y"},
            "loss": "cross_entropy",
            "batch_size": batch_size or {"total": 96},
            "pipeline": {"stages": n_stages},
        },
    }
    return Plan(StudyConfiguration.model_validate(content), folder, None, n_ranks)


@pytest.fixture
def search(tmp_path):
    """Starts a search with `n_trials` trials and returns the sizes of its blocks and what it says."""

    def start(n_trials: int, n_ranks: int, link: MeasuredLink, batch_size=None) -> tuple[list[int], list[str]]:
        plan = planned(tmp_path, n_ranks, n_trials, batch_size)
        pool = BlockPool(link, BlockMembership.of(plan.layout, itertools.count()))
        said: list[str] = []
        with open_study(plan) as study:
            choose_size(plan, study.store, study.record, pool, None, NO_REQUEST, said.append)
            pool.assemble(None)
            settle(pool)
        return sorted(map(len, pool.membership.blocks.values())), said

    return start


def settle(pool: BlockPool) -> None:
    """Answers the messages with which ranks leave blocks and join others."""
    while not pool.is_settled:
        for rank, message in pool.receive(0.1, lambda: False):
            if isinstance(message, Ready):
                pool.mark_ready(message)
            if isinstance(message, LeftBlock):
                pool.mark_left(rank)


def events(tmp_path) -> list[str]:
    with Store.open(f"sqlite:///{tmp_path}/sized.db") as store:
        return [event.detail for event in store.events(1) if event.kind == SIZE_MEASURED]


def test_the_chosen_size_is_recorded_and_a_search_that_continues_measures_nothing(search, tmp_path):
    link = MeasuredLink()
    sizes, said = search(1, 5, link)
    assert sizes == [4]  # of one trial, which takes a quarter of the time
    assert set(link.sizes) == {1, 2, 4}
    assert events(tmp_path) == said
    assert said[0].startswith("4 ranks per block, on 5 ranks: the search ends ")
    again = MeasuredLink()
    sizes, continued = search(1, 5, again)
    assert sizes == [4]
    assert not again.sizes
    assert continued == [f"measured before: {said[0]}"]
    assert events(tmp_path) == said


def test_with_many_trials_the_blocks_have_one_rank(search):
    sizes, _ = search(400, 5, MeasuredLink())
    assert sizes == [1, 1, 1, 1]


def test_another_number_of_ranks_is_measured_unless_results_depend_on_the_size(search, tmp_path):
    search(1, 5, MeasuredLink())
    wider = MeasuredLink()
    assert search(1, 9, wider)[0] == [8]
    assert wider.sizes
    assert len(events(tmp_path)) == 2


def test_a_study_whose_results_depend_on_the_size_keeps_it(search):
    sizes, said = search(1, 5, MeasuredLink(), batch_size=8)
    assert sizes == [4]
    assert "batch_size: {total: …}" in said[1]
    link = MeasuredLink()
    assert search(1, 9, link, batch_size=8)[0] == [4, 4]
    assert not link.sizes


def test_one_rank_that_trains_has_nothing_to_choose(search, tmp_path):
    link = MeasuredLink()
    assert search(1, 2, link) == ([1], [])
    assert not link.sizes
    assert events(tmp_path) == []


def test_after_a_lost_rank_the_others_form_the_smallest_blocks(search):
    link = MeasuredLink()
    link.waiting.append((0, Lost(frozenset({2}))))
    sizes, (said,) = search(1, 5, link)
    assert sizes == [1, 1, 1]
    assert "1 rank lost" in said


def test_a_measurement_without_a_search_says_what_it_measures_and_what_has_failed(tmp_path):
    link, said = MeasuredLink(failing={(4, 0), (4, 1), (4, 2)}), []
    curves = run_measurement(planned(tmp_path, 5), link, NO_REQUEST, itertools.count(), said.append)
    first, *others = said
    n = int(re.fullmatch(r"measuring (\d) configurations on 1 rank", first)[1])
    assert others == [
        *[f"measuring {n} configurations on {ranks} ranks" for ranks in (2, 4)],
        "note: some trainings could not be measured: ValueError: too large",
    ]
    assert [curve.n for curve in curves] == [[1, 2]] * n
    assert link.dismissed == {1, 2, 3, 4}


def test_a_measurement_needs_the_ranks_of_one_model_in_stages(tmp_path):
    with pytest.raises(ConfigurationError, match=r"a model in 3 stages is measured on 4 ranks or more") as error:
        run_measurement(planned(tmp_path, 1, n_stages=3), MeasuredLink(), NO_REQUEST, itertools.count(), print)
    assert error.value.cure == "write --ranks 4"
