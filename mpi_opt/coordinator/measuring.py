"""Measures short trainings on blocks of several sizes, and chooses the size from the times of a search with each.

All ranks are in blocks of one size at a time, and all blocks train at once, as they do in a search: trainings on the
same host share its memory and caches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from mpi_learn.job.stop_request import StopRequest
from mpi_learn.settings.user_files import SourceCode, fixed
from mpi_learn.training.timing.times import TrainingTimes
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.plan import Plan, training_layout
from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import TICK_S, BlockPool
from mpi_opt.coordinator.blocks.faults import SilentRanks
from mpi_opt.coordinator.trials.trial_queue import STRANDED_S
from mpi_opt.core.block_layout import BlockLayout, fold_groups
from mpi_opt.core.counted import counted
from mpi_opt.core.scalability import Scalability, ScalingCurve, candidate_sizes, distinct_layouts, mean_times
from mpi_opt.core.search_space.space import Parameters
from mpi_opt.core.trial import TRIALS_PER_STUDY, Outcome, Proposal
from mpi_opt.errors import ConfigurationError, SearchFailed
from mpi_opt.messages.messages import Abandoned, Alive, Assignment, Broken, CoordinatorLink, LeftBlock, Lost, Ready
from mpi_opt.store import Store
from mpi_opt.store.events import SIZE_MEASURED
from mpi_opt.store.records import StudyRecord
from mpi_opt.strategies.make_strategy import make_strategy  # imports SciPy only if sizes are measured
from mpi_opt.study.opening.announcement import n_to_run
from mpi_opt.study.reading import read_record


def size_text(size: int, n_ranks: int, why: str) -> str:
    """The event as text; `recorded_size` reads it."""
    return f"{counted(size, 'rank')} per block, on {counted(n_ranks, 'rank')}: {why}"


def recorded_size(store: Store, study_id: int, n_ranks: int, *, on_any_ranks: bool) -> tuple[int, str] | None:
    """The latest measured size of a study, with its event; None if there is none.

    Args:
        n_ranks: All ranks of the search.
        on_any_ranks: Whether a size that was measured on another number of ranks is also used.
    """
    for event in reversed(store.events(study_id)):
        found = re.match(r"(\d+) ranks? per block, on (\d+) ranks?: ", event.detail)
        if event.kind == SIZE_MEASURED and found and (on_any_ranks or int(found[2]) == n_ranks):
            return int(found[1]), event.detail
    return None


N_POINTS = 3
"""Number of points of the space that are measured: its centre, and others that cover it evenly."""

MEASURED_S = 1.0
"""Each point is trained for about this time on each number of ranks, besides the start of the training, in seconds."""


class MeasuringFailed(SearchFailed):
    """No training could be measured."""


def representative_points(configuration: StudyConfiguration) -> list[Parameters]:
    """The centre of the space, and points that cover it evenly and satisfy the constraints; all different."""
    space, search = configuration.search_space(), configuration.search
    named = {"constraints": search.options["constraints"]} if "constraints" in search.options else {}
    spread = [proposal.parameters for proposal in make_strategy("sobol", space, search.seed, named).ask(N_POINTS - 1)]
    points: list[Parameters] = []
    for point in (space.centre(), *spread):
        if point not in points:
            points.append(point)
    return points


def measured_sizes(n_training: int, unit: int) -> list[int]:
    """The numbers of ranks on which trainings are measured: powers of two times `unit`, and all ranks."""
    doubled = [unit * 2**i for i in range(n_training.bit_length())]
    return sorted({size for size in (*doubled, n_training // unit * unit) if size <= n_training})


@dataclass
class Measuring:
    """Measures the points of a space on blocks of one size after another.

    Attributes:
        pool: The blocks.
        points: The points.
        n_ranks: All ranks, with that of the coordinator.
        spares: Number of ranks, the last ones, that are not measured.
        unit: Each block has a multiple of this number of ranks.
        note: Shows a sentence to the user.
        is_interrupted: Whether the measurement must end.
        times: Index of a point -> number of ranks -> times, of those that did not fail.
        code: The user's Python files, which all ranks run; None if each rank reads them.
        silent: Finds ranks that give no sign of life.
        failures: The first lines of the errors of trainings, in the order of their ends.
    """

    pool: BlockPool
    points: Sequence[Parameters]
    n_ranks: int
    spares: int
    unit: int
    note: Callable[[str], None]
    is_interrupted: Callable[[], bool]
    times: dict[int, dict[int, TrainingTimes]] = field(default_factory=dict)
    code: SourceCode | None = None
    silent: SilentRanks = field(default_factory=lambda: SilentRanks(None))
    failures: list[str] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=lambda: count(TRIALS_PER_STUDY))  # those of no trial
    _running: dict[int, int] = field(default_factory=dict)  # number -> the block that trains
    _stranded: dict[int, tuple[float, str]] = field(default_factory=dict)  # number -> when it must end, error of a rank

    def measure(self, size: int) -> None:
        """Measures all points on blocks of `size` ranks.

        Raises:
            MeasuringFailed: A rank was lost, a block does not answer, or the measurement was interrupted.
            UserError: The objective cannot be prepared.
        """
        left_over = (self.n_ranks - 1 - self.spares) % size
        self.pool.rearrange(BlockLayout(self.n_ranks, size, spares=self.spares + left_over, unit=self.unit))
        self.pool.assemble(self.code)
        while not self.pool.is_settled:
            self._receive()
        if size == self.unit:  # the first training of a process takes longer
            self._run(self.points[0], limit_s=0.0)
        for index, point in enumerate(self.points):
            outcomes = self._run(point, MEASURED_S)
            errors = [str(outcome.error).partition("\n")[0] for outcome in outcomes if outcome.state == "failed"]
            self.failures += errors
            if not errors:
                self.times.setdefault(index, {})[size] = mean_times([_times_of(one) for one in outcomes])

    def curves(self) -> list[ScalingCurve]:
        """The times of the points that could be trained at all, on the numbers of ranks on which all of them could.

        Raises:
            MeasuringFailed: There are none.
        """
        measured = list(self.times.values())
        sizes = set(measured[0]).intersection(*measured) if measured else set()
        if not sizes:
            why = self.failures[-1] if self.failures else "no training has ended"
            raise MeasuringFailed(f"there is no number of ranks on which all trainings could be measured: {why}")
        return [ScalingCurve({size: times[size] for size in sizes}) for times in measured]

    def note_failures(self) -> None:
        """Shows why some points were not measured, if there are any."""
        if self.failures:
            self.note(f"note: some trainings could not be measured: {self.failures[-1]}")

    def _run(self, point: Parameters, limit_s: float) -> list[Outcome]:
        """Trains at `point` on all blocks at once; returns the outcome of each block."""
        outcomes = list[Outcome]()
        for block in self.pool.membership.blocks:
            number = next(self._numbers)
            self._running[number] = block
            leader = self.pool.ranks(block)[0]
            self.pool.link.send(leader, Assignment(Proposal(number, point), measured_s=limit_s))
        while self._running:
            outcomes += self._receive()
        return outcomes

    def _receive(self) -> list[Outcome]:
        """Waits for messages and takes them into account; returns the outcomes of the trainings that run."""
        outcomes, lost = list[Outcome](), ""
        # a block may report late about an earlier point: only the numbers of running trainings count
        for rank, message in self.pool.receive(TICK_S, self.is_interrupted):
            match message:
                case Outcome() if self._running.pop(message.number, None) is not None:
                    self._stranded.pop(message.number, None)
                    outcomes.append(message)
                case Abandoned() if self._running.get(message.number) == message.block:
                    self._stranded.setdefault(message.number, (self.pool.now_s + STRANDED_S, message.error))
                case Alive():
                    self.silent.hear(rank, self.pool.now_s)
                case Ready():
                    self.pool.mark_ready(message)
                case LeftBlock():
                    self.pool.mark_left(rank)
                case Broken() if message.block in self.pool:
                    self.pool.mark_broken(message)
                    self.pool.disband(message.block)
                    lost = message.reason
                case Lost():
                    for block in self.pool.lose(message.ranks):
                        self.pool.disband(block)
                    lost = f"{counted(len(message.ranks), 'rank')} lost"
        lost = lost or self._give_up_unanswering()
        if lost or self.is_interrupted():
            raise MeasuringFailed(f"the measurement has ended early: {lost or 'it was interrupted'}")
        return outcomes

    def _give_up_unanswering(self) -> str:
        """Gives up silent ranks, blocks that do not answer, and ranks that do not leave theirs; returns why, or ""."""
        pool, why = self.pool, ""
        if silent := pool.not_yet_lost(frozenset(self.silent.take(pool.now_s))):
            for block in pool.lose_silent(set(silent)):
                pool.disband(block)
            why = f"{counted(len(silent), 'rank')} gave no sign of life"
        # without protection, a rank that fails cannot free the others of its block, which may wait for it for ever
        for number, (due_s, error) in self._stranded.items():
            if due_s < pool.now_s and self._running[number] in pool:
                pool.disband(self._running[number])
                first_line, _, _ = error.partition("\n")
                why = why or f"a block does not answer after a rank of it has failed: {first_line}"
        if gone := pool.give_up_unresponsive():
            why = why or f"{counted(len(gone), 'rank')} did not leave the block"
        return why


def _times_of(outcome: Outcome) -> TrainingTimes:
    return TrainingTimes(**{name: value for name, (value,) in outcome.history.items()})


def run_measurement(
    plan: Plan, link: CoordinatorLink, request: StopRequest, block_indices: Iterator[int], note: Callable[[str], None]
) -> list[ScalingCurve]:
    """Measures the trainings of a study without running it, on all ranks. Always dismisses the workers.

    Args:
        plan: The plan of the study.
        link: To the workers.
        request: Receives the signals that end the measurement.
        block_indices: The indices of the blocks, ascending, none of which was used before.
        note: Shows a sentence to the user.

    Raises:
        UserError: The objective cannot be prepared, or there are too few ranks.
        MeasuringFailed: No training could be measured.
    """
    unit, n_training = plan.configuration.n_stages, plan.n_ranks - 1
    if n_training < unit:
        raise ConfigurationError(
            f"a model in {unit} stages is measured on {unit + 1} ranks or more, one of which coordinates",
            where="--ranks",
            cure=f"write --ranks {unit + 1}",
        )
    pool = BlockPool(link, BlockMembership.of(BlockLayout(plan.n_ranks, unit, unit=unit), block_indices))
    with ExitStack() as stack:
        stack.callback(pool.dismiss)
        code = plan.read_code()
        stack.enter_context(fixed(code))
        points = representative_points(plan.configuration)
        silent = SilentRanks(plan.configuration.blocks.silence_s)
        measuring = Measuring(
            pool,
            points,
            plan.n_ranks,
            0,
            unit,
            note,
            lambda: request.signal_name is not None,
            code=code,
            silent=silent,
        )
        for size in measured_sizes(n_training, unit):
            note(f"measuring {counted(len(points), 'configuration')} on {counted(size, 'rank')}")
            measuring.measure(size)
        measuring.note_failures()
        return measuring.curves()


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
            n_trials = n_to_run(plan, read_record(store, record.name), store)
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
