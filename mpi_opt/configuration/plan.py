"""The settings of a search, complete before it starts, and the roles of the ranks that train one fold."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mpi_learn.algorithms.configuration import LayoutKeys
from mpi_learn.algorithms.rank_layout import RankLayout, make_rank_layout, rank_layout_of
from mpi_learn.settings.user_files import SourceCode, names_of_functions, read_source_code
from mpi_learn.settings.validation import validated
from mpi_opt.configuration.configuration import StudyConfiguration
from mpi_opt.configuration.definition import Definition
from mpi_opt.configuration.placeholders import filled
from mpi_opt.core.block_layout import MEASURED, BlockLayout
from mpi_opt.core.folds.fold_stopping import CompleteTrials
from mpi_opt.core.limits import SearchLimits
from mpi_opt.core.objective import Objective, TrialSettings, WorkerPlan
from mpi_opt.core.search_space.space import Space


@dataclass
class Plan:
    """The settings of a search, the same on every rank.

    Attributes:
        configuration: The contents of the ``space.yaml``.
        directory: The directory of that file.
        objective: What the blocks run; None if other programs run the trials.
        n_ranks: The number of ranks.
        report: Whether the command line writes a report at the end.
        wait: Whether to wait for another search that runs the study.
        definition: Where an objective of Python is defined; None if the configuration names it.
        resume: Whether a study that was made with another objective of Python continues with this one.
        command: The command that the user has typed; empty if there is none.
        restart_reason: Why the job of the search was started again, one line for each time that is not in the store
            yet; empty if it was not.
        log: The file to which the events of the search are appended as JSON; None: none.
        space: The search space.
        layout: The role of each rank.
        record: The configuration that is stored with the study.
    """

    configuration: StudyConfiguration
    directory: Path
    objective: Objective | None = None
    n_ranks: int = 1
    report: bool = False
    wait: bool = False
    definition: Definition | None = None
    resume: bool = False
    command: str = ""
    restart_reason: str = ""
    log: Path | None = None
    space: Space = field(init=False)
    layout: BlockLayout = field(init=False)
    record: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.space, self.layout = self.configuration.search_space(), self.configuration.layout(self.n_ranks)
        content = json.loads(json.dumps(self.configuration.model_dump(), default=str))  # as the store returns it
        self.record = content | {"directory": str(self.directory)}

    @property
    def is_measured(self) -> bool:
        """Whether the search measures the size of its blocks: one process has no choice."""
        return self.configuration.blocks.size == MEASURED and not self.layout.is_serial

    @property
    def blocks_text(self) -> str:
        """The number of blocks and their size, as far as they are known before the search."""
        return "blocks of a measured size" if self.is_measured else str(self.layout)

    def read_code(self) -> SourceCode:
        """Reads the Python files of the user's functions and the local modules that they import."""
        keys = {"objective", "figure_of_merit", "space", "search", "training"}
        names = names_of_functions(self.configuration.model_dump(include=keys))
        files = [Path(self.definition.file)] if self.definition is not None and self.definition.file else []
        return read_source_code(names, self.directory, files)

    @property
    def code_folder(self) -> Path:
        """The folder of the user's code: that of the file of an objective of Python, or of the configuration."""
        file = "" if self.definition is None else self.definition.file
        return Path(file).parent if file else self.directory

    @property
    def worker_plan(self) -> WorkerPlan:
        """The part for ranks that run trials."""
        configuration = self.configuration
        assert self.objective is not None, "other programs run the trials of this study"
        settings = TrialSettings(
            seed=configuration.search.seed,
            n_folds=configuration.folds.number,
            timeout_s=configuration.trial.timeout_s,
            example_parameters=self.space.centre(),
            figures_of_merit=configuration.figures_of_merit(),
            silence_s=configuration.blocks.silence_s,
            is_elastic=bool(configuration.blocks.elastic),
        )
        return WorkerPlan(self.objective, settings, configuration.file_name)

    @property
    def options(self) -> dict[str, Any]:
        """The strategy's options. Some defaults depend on the training and on the number of blocks."""
        search = self.configuration.search
        known: dict[str, Any] = {}
        if search.options.get("reproducible"):  # at least the number of trials that run at once
            known["lag"] = max(16, len(self.layout.blocks))
        elif search.strategy == "evolutionary" and search.options.get("generational"):  # so that no block is idle
            known["population"] = max(10, len(self.layout.blocks))
        if search.strategy == "halving" and self.configuration.training is not None:
            with suppress(TypeError, ValueError, OverflowError):  # reported when the training is read
                known["max_budget"] = max(1, int(float(self.configuration.training.get("epochs", 1))))
        return known | search.options

    def new_complete_trials(self) -> CompleteTrials:
        """An empty collector of complete trials, to stop folds early. Without ``stop_early`` it stops none."""
        folds, options = self.configuration.folds, self.options
        if not folds.stop_early:
            return CompleteTrials()
        return CompleteTrials(
            folds.number, self.limits.figures_of_merit.sign, options["lag"] if options.get("reproducible") else None
        )

    @property
    def limits(self) -> SearchLimits:
        """The limits of the search."""
        search, trial = self.configuration.search, self.configuration.trial
        return SearchLimits(
            n_trials=search.trials,
            target=self.configuration.target(),
            figures_of_merit=self.configuration.figures_of_merit(),
            retries=trial.retries,
            timeout_s=trial.timeout_s,
        )


def training_layout(configuration: StudyConfiguration) -> Callable[[int], RankLayout]:
    """A function from the number of ranks of a fold to their roles: equal, or those of the training algorithm."""
    if configuration.training is None:
        return make_rank_layout
    wanted = {key: value for key, value in configuration.training.items() if key in LayoutKeys.model_fields}
    keys = validated(LayoutKeys, filled(wanted, configuration.search_space().centre()), "training")
    return partial(rank_layout_of, keys.algorithm, stages=keys.n_stages)
