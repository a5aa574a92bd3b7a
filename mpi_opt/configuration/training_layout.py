"""The roles of the ranks that train one fold, without MPI."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mpi_learn.algorithms.configuration import LayoutKeys
from mpi_learn.algorithms.rank_layout import RankLayout, make_rank_layout, rank_layout_of
from mpi_learn.settings.validation import validated
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.placeholders import filled


def training_layout(configuration: StudyConfiguration) -> Callable[[int], RankLayout]:
    """A function from the number of ranks of a fold to their roles: equal, or those of the training algorithm."""
    if configuration.training is None:
        return make_rank_layout
    wanted = {key: value for key, value in configuration.training.items() if key in LayoutKeys.model_fields}
    keys = validated(LayoutKeys, filled(wanted, configuration.search_space().centre()), "training")
    return partial(rank_layout_of, keys.algorithm, stages=keys.n_stages)
