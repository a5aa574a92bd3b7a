"""The settings of a search that the coordinator needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mpi_learn.settings.user_files import SourceCode
from mpi_opt.coordinator.pruning.pruning_rule import PruningRule
from mpi_opt.coordinator.stop_condition import StopCondition
from mpi_opt.coordinator.trials.kept_models import KeptModels
from mpi_opt.core.folds.fold_stopping import CompleteTrials
from mpi_opt.core.limits import SearchLimits
from mpi_opt.core.search_space.space import Space
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.study.progress import Progress


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search.

    Attributes:
        limits: The limits of the search.
        n_folds: Number of folds, K.
        complete_trials: Collects the complete trials with which the folds of later trials are compared.
        progress: The observer of the search.
        stop_condition: When the search ends before all trials are done.
        new_strategy: Builds a strategy without trials, for a study of which another process has started a trial. None:
            this is an error.
        load_library: Loads what the strategy needs for its first proposals. Called while the blocks form.
        check_lease: Raises `StudyOwnedError` if another search has taken the study over.
        study: The study's key, as in `Trial.study`.
        seed: The seed with which the study was created, from which the seeds of its trials follow.
        kept_models: Decides which models of trials are kept; None: none are.
        discard: Removes the checkpoints of trials from which no other trial will resume.
        code: The user's Python files, which all ranks run; None if each rank reads them.
        code_number: The number of the code in the study, see `CodeRecord`.
        continues_on_fewer_ranks: See `Objective.continues_on_fewer_ranks`.
        is_elastic: Whether running trials may continue on another number of ranks: ``blocks.elastic``.
        is_by_merit: Whether the best of them get idle ranks first: ``elastic: merit``.
        silence_s: See `TrialSettings`.
        pruning_rule: Stops trials because of intermediate values, with any strategy; None: the strategy alone does.
        repeats_points: Whether the strategy repeats points on purpose.
        died_at: The last sign of life of the search before, if it was killed.
        was_finished: Whether the study was recorded as finished before the search.
        space: The space of the study, to which points of hints are completed; None if they are complete.
    """

    limits: SearchLimits
    n_folds: int = 1
    complete_trials: CompleteTrials = field(default_factory=CompleteTrials)
    progress: Progress = field(default_factory=Progress)
    stop_condition: StopCondition = field(default_factory=StopCondition)
    new_strategy: Callable[[], Strategy] | None = None
    load_library: Callable[[], None] = lambda: None
    check_lease: Callable[[], None] = lambda: None
    study: str = ""
    seed: int | None = None
    kept_models: KeptModels | None = None
    discard: Callable[[str, list[int]], None] = lambda study, numbers: None
    code: SourceCode | None = None
    code_number: int | None = None
    continues_on_fewer_ranks: bool = False
    is_elastic: bool = False
    is_by_merit: bool = False
    silence_s: float | None = None
    pruning_rule: PruningRule | None = None
    repeats_points: bool = False
    died_at: str | None = None
    was_finished: bool = False
    space: Space | None = None
