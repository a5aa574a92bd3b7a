"""The kinds of events, by which the store records what has happened in a search besides its trials."""

from __future__ import annotations

TRIAL_CONTINUED = "trial_continued"
"""Event: a trial continues from its last epoch, on the ranks that are left of its block or, if elastic, on others."""

STUDY_FINISHED, STUDY_RESUMED, SEARCH_STOPPED = "study_finished", "study_resumed", "search_stopped"
"""Events that a search records: the study is finished; a study continues; a search stopped early.

`ask` records the first two as well.
"""

SEARCH_FINISHED = "search_finished"
"""Event of a search that leaves only trials of a workload system. The study is finished when these have ended."""

SEARCH_RESTARTED = "search_restarted"
"""Event: the job of a search was started again (``--restarts``), because of a lost host or process."""

SPACE_EXTENDED = "space_extended"
"""Event: a study continues with a larger space (``search.extend``)."""

SEARCH_CHANGED = "search_changed"
"""Event: a study continues with another strategy or other settings of it."""

CODE_CHANGED = "code_changed"
"""Event: a study continues with other code than before, or a file was edited during a search."""

BATCH_SIZE_CHOSEN = "batch_size_chosen"
"""Event: the number that all trials have for ``batch_size: auto``, and why."""

STRATEGY_FAILED = "strategy_failed"
"""Event: the strategy raised an exception, and the search continues with random points."""

STRATEGY_CHOSEN = "strategy_chosen"
"""Event: what the strategy `auto` has chosen to do, and why."""

SEARCH_EVENTS = (STUDY_FINISHED, STUDY_RESUMED, SEARCH_STOPPED, SEARCH_FINISHED)
"""The events that decide whether a study is finished; the latest one counts."""

RANK_LOST, BLOCK_LOST, BLOCK_RETIRED = "rank_lost", "block_lost", "block_retired"
"""Events: a rank has died or was given up; a block was given up; a block runs no more trials, because too many fail."""

HOST_FAULT = "host_fault"
"""Event: a block waits, and its trial runs again, because of a fault of its host."""

SIZE_MEASURED = "size_measured"
"""Event: the size of the blocks that was measured, for how many ranks, and why it is the best."""

HINT = "hint"
"""Event: a hint of a user, which the strategy follows."""
