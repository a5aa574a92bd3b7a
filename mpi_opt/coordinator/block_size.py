"""Chooses the size of blocks with which a search ends first, from measured trainings: ``blocks.size: measured``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mpi_learn.job.stop_request import StopRequest
from mpi_learn.settings.user_files.source_code import SourceCode
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.plan import Plan
from mpi_opt.configuration.training_layout import training_layout
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.blocks.silent_ranks import SilentRanks
from mpi_opt.coordinator.measuring import Measuring, MeasuringFailed, measured_sizes, representative_points
from mpi_opt.core.block_layout import BlockLayout, fold_groups
from mpi_opt.core.scalability import Scalability, ScalingCurve, candidate_sizes, distinct_layouts
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.store.records import StudyRecord
from mpi_opt.study.measured_size import SIZE_MEASURED, recorded_size, size_text
from mpi_opt.study.opening.announcement import n_to_run
from mpi_opt.study.study import Study

LEAST_S, SHARE = 10.0, 0.05
"""A search measures wider blocks until this time has passed, in seconds, or this share of its expected time if that is
longer."""

GIVE_UP = 1.5
"""A search measures no wider blocks if the widest ones so far take this number of times as long as the best ones."""


def layout_with(configuration: StudyConfiguration, n_ranks: int, size: int) -> BlockLayout:
    """The roles of `n_ranks` ranks with blocks of `size`."""
    sized = configuration.blocks.model_copy(update={"size": size})
    return configuration.model_copy(update={"blocks": sized}).layout(n_ranks)


def scalability_of(
    configuration: StudyConfiguration, curves: Sequence[ScalingCurve], n_ranks: int, n_trials: int
) -> Scalability:
    """The time of a search of `n_trials` trials on `n_ranks` ranks for all sizes of its blocks.

    Raises:
        ConfigurationError: There are too few ranks for one block.
        MeasuringFailed: No size can be used.
    """
    n_folds, n_training = configuration.folds.number, n_ranks - 1 - configuration.blocks.spares

    sizes = candidate_sizes(n_training, n_trials, n_folds, configuration.n_stages)
    usable = [
        layout
        for layout in distinct_layouts(partial(layout_with, configuration, n_ranks), sizes)
        if _can_train(configuration, layout)
    ]
    found = Scalability.of(curves, usable, n_trials)
    if not found.sizes:
        raise MeasuringFailed("no size of the blocks can be used with this algorithm")
    return found


def _can_train(configuration: StudyConfiguration, layout: BlockLayout) -> bool:
    """Whether the algorithm of the training can use the blocks: clusters and masters need some numbers of ranks."""
    roles = training_layout(configuration)
    try:
        for n_ranks in {len(group) for block in layout.blocks for group in fold_groups(len(block), layout.n_folds)}:
            roles(n_ranks)
    except ConfigurationError:
        return False
    return True


def choose_size(
    plan: Plan,
    store: Store,
    record: StudyRecord,
    pool: BlockPool,
    code: SourceCode,
    request: StopRequest,
    note: Callable[[str], None],
) -> None:
    """Forms blocks of the measured size: that in the study, or else that with which the search ends first.

    If nothing can be measured, for example because a rank is lost meanwhile, the blocks are the smallest ones. A study
    whose results depend on the size keeps it, also on another number of ranks.

    Raises:
        UserError: The objective cannot be prepared.
    """
    configuration, n_ranks = plan.configuration, plan.n_ranks
    if n_ranks - 1 - configuration.blocks.spares < 2 * configuration.n_stages:
        return  # there is only one size
    keeps_size = not configuration.has_total_batch
    if (known := recorded_size(store, record.id, n_ranks, on_any_ranks=keeps_size)) is not None:
        size, text = known
        note(f"measured before: {text}")
    else:
        try:
            n_trials = n_to_run(plan, Study.read(store, record.name), store)
            found = _measured_in_search(plan, pool, code, request, note, n_trials)
            size, why = found.best.n_ranks, found.reason
        except MeasuringFailed as error:
            if request.signal_name is not None:
                return  # the search ends before its first trial
            size, why = configuration.n_stages, str(error)
        text = size_text(size, n_ranks, why)
        store.event(record.id, SIZE_MEASURED, text)
        note(text)
        if keeps_size:
            note("note: the results of trials depend on this size; with batch_size: {total: …} they do not")
    pool.rearrange(layout_with(configuration, n_ranks, size))


def _measured_in_search(
    plan: Plan,
    pool: BlockPool,
    code: SourceCode,
    request: StopRequest,
    note: Callable[[str], None],
    n_trials: int,
) -> Scalability:
    """Measures on wider and wider blocks, while this takes a small part of the search and wider ones may be better."""
    configuration, unit = plan.configuration, plan.configuration.n_stages
    n_ranks, spares = plan.n_ranks, configuration.blocks.spares
    points = representative_points(configuration)
    silent = SilentRanks(configuration.blocks.silence_s)
    measuring = Measuring(
        pool, points, n_ranks, spares, unit, note, lambda: request.signal_name is not None, code=code, silent=silent
    )
    for size in measured_sizes(n_ranks - 1 - spares, unit):
        measuring.measure(size)
        found = scalability_of(configuration, measuring.curves(), n_ranks, n_trials)
        if size == unit:  # before, the ranks have loaded libraries and data, which they need in any case
            began_s = pool.now_s
        limit_s = max(LEAST_S, SHARE * found.best.search_s)
        if pool.now_s - began_s > limit_s or found.sizes[-1].search_s > GIVE_UP * found.best.search_s:
            break
    measuring.note_failures()
    return found
