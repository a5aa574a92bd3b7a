"""The tables and columns. They are a public interface; every change is a new version with a migration.

The ``id`` of a trial is ``study_id`` × 10⁹ + ``number``: readable, and known without a query.
JSON is stored in text columns, which every database has; the view of a study extracts the values.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from mpi_opt.core.figures_of_merit import VAL_LOSS, Direction, FiguresOfMerit, Selection, read_figures_of_merit
from mpi_opt.core.search_space.space import DIMENSIONS, Space

VERSION = 4
"""The version of the schema that this program reads and writes."""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "ALTER TABLE studies ADD COLUMN selection VARCHAR(8) DEFAULT 'mean' NOT NULL",
        "ALTER TABLE studies ADD COLUMN merits TEXT",
        "ALTER TABLE trials ADD COLUMN pareto INTEGER",
        "CREATE TABLE figures_of_merit (trial_id BIGINT NOT NULL REFERENCES trials (id), name VARCHAR(255) NOT NULL, "
        "value FLOAT, uncertainty FLOAT, PRIMARY KEY (trial_id, name))",
        "CREATE TABLE fold_figures_of_merit (trial_id BIGINT NOT NULL REFERENCES trials (id), fold INTEGER NOT NULL, "
        "name VARCHAR(255) NOT NULL, value FLOAT, PRIMARY KEY (trial_id, fold, name))",
        "CREATE TABLE transferred (study_id INTEGER NOT NULL REFERENCES studies (id), position INTEGER NOT NULL, "
        "parameters TEXT NOT NULL, figure_of_merit FLOAT NOT NULL, PRIMARY KEY (study_id, position))",
    ),
    2: (
        "ALTER TABLE studies ADD COLUMN n_ended INTEGER DEFAULT 0 NOT NULL",
        "UPDATE studies SET n_ended = "
        "(SELECT COALESCE(MAX(trials.ended), -1) + 1 FROM trials WHERE trials.study_id = studies.id)",
        "CREATE INDEX trials_by_ending ON trials (study_id, ended)",
        "CREATE TABLE leases (study_id INTEGER NOT NULL REFERENCES studies (id), token VARCHAR(32) NOT NULL, "
        "host VARCHAR(255) NOT NULL, machine VARCHAR(512) NOT NULL, process BIGINT NOT NULL, process_began BIGINT, "
        "since VARCHAR(32) NOT NULL, renewed_at VARCHAR(32) NOT NULL, PRIMARY KEY (study_id))",
    ),
    3: (
        "CREATE TABLE codes (study_id INTEGER NOT NULL REFERENCES studies (id), number INTEGER NOT NULL, "
        "digest VARCHAR(64) NOT NULL, since VARCHAR(32) NOT NULL, files TEXT NOT NULL, packages TEXT NOT NULL, "
        "data TEXT NOT NULL, git_commit VARCHAR(64), objective TEXT, PRIMARY KEY (study_id, number))",
        "ALTER TABLE attempts ADD COLUMN code INTEGER",
        "ALTER TABLE trials ADD COLUMN note TEXT",
        "ALTER TABLE studies ADD COLUMN commands TEXT",
    ),
}
"""Version -> the statements that migrate a database of that version to the next one, in every dialect."""

metadata = MetaData()

schema_version = Table("schema_version", metadata, Column("version", Integer, nullable=False))

studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("direction", String(8), nullable=False),
    Column("strategy", String(255), nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("configuration", Text, nullable=False),
    Column("space", Text, nullable=False),
    Column("view_name", String(255), nullable=False),
    Column("selection", String(8), nullable=False, server_default="mean"),
    Column("merits", Text),  # with several figures of merit: [{"name": …, "direction": …}, …], as JSON
    Column("n_ended", Integer, nullable=False, server_default="0"),  # the next value of `trials.ended`
    Column("commands", Text),  # the different commands that ran trials, the latest last, as JSON
)

trials = Table(
    "trials",
    metadata,
    # SQLite uses a column declared INTEGER as the row's id, with 64 bits
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("study_id", ForeignKey("studies.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", String(8), nullable=False),
    Column("figure_of_merit", Float(53)),
    Column("uncertainty", Float(53)),
    Column("parameters", Text, nullable=False),
    Column("started_at", String(32)),
    Column("finished_at", String(32)),
    Column("duration_s", Float(53)),
    Column("attempts", Integer, nullable=False),
    Column("error", Text),
    Column("budget", Float(53)),
    Column("resume_from", Integer),
    Column("ended", Integer),  # 0-based, in the order of ending: a resumed strategy learns the outcomes in this order
    Column("note", Text),  # of the user
    Column("pareto", Integer),  # with several figures of merit: 1 on the front of the complete trials, else 0
    UniqueConstraint("study_id", "number"),
    Index("trials_by_merit", "study_id", "state", "figure_of_merit"),
    Index("trials_by_ending", "study_id", "ended"),
)


def _of_trial(*key: Column[Any]) -> tuple[Column[Any], ...]:
    return Column("trial_id", ForeignKey("trials.id"), primary_key=True, autoincrement=False), *key


folds = Table(
    "folds",
    metadata,
    *_of_trial(Column("fold", Integer, primary_key=True, autoincrement=False)),
    Column("figure_of_merit", Float(53)),
    Column("duration_s", Float(53)),
    sqlite_with_rowid=False,
)

figures_of_merit = Table(
    "figures_of_merit",
    metadata,
    Column("trial_id", BigInteger, ForeignKey("trials.id"), primary_key=True, autoincrement=False),
    Column("name", String(255), primary_key=True),
    Column("value", Float(53)),
    Column("uncertainty", Float(53)),
)

fold_figures_of_merit = Table(
    "fold_figures_of_merit",
    metadata,
    Column("trial_id", BigInteger, ForeignKey("trials.id"), primary_key=True, autoincrement=False),
    Column("fold", Integer, primary_key=True, autoincrement=False),
    Column("name", String(255), primary_key=True),
    Column("value", Float(53)),
)

transferred = Table(
    "transferred",
    metadata,
    Column("study_id", ForeignKey("studies.id"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("parameters", Text, nullable=False),
    Column("figure_of_merit", Float(53), nullable=False),
)

metrics = Table(
    "metrics",
    metadata,
    *_of_trial(
        Column("fold", Integer, primary_key=True, autoincrement=False),
        Column("epoch", Integer, primary_key=True, autoincrement=False),
        Column("name", String(255), primary_key=True),
    ),
    Column("value", Float(53)),
    sqlite_with_rowid=False,
)

attempts = Table(
    "attempts",
    metadata,
    *_of_trial(Column("attempt", Integer, primary_key=True, autoincrement=False)),
    Column("block", Integer, nullable=False),
    Column("ranks", Text, nullable=False),
    Column("hosts", Text, nullable=False),
    Column("started_at", String(32), nullable=False),
    Column("finished_at", String(32)),
    Column("outcome", String(8)),
    Column("error", Text),
    Column("code", Integer),  # `codes.number`; NULL if unknown
    sqlite_with_rowid=False,
)

codes = Table(
    "codes",
    metadata,
    Column("study_id", ForeignKey("studies.id"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),  # 1-based
    Column("digest", String(64), nullable=False),  # of files, packages and data
    Column("since", String(32), nullable=False),
    Column("files", Text, nullable=False),  # file -> SHA-256, as JSON
    Column("packages", Text, nullable=False),  # package -> version, as JSON
    Column("data", Text, nullable=False),  # place of data -> {files, bytes, changed, digest}, as JSON
    Column("git_commit", String(64)),
    Column("objective", Text),  # a function of Python: {name, file, digest}, as JSON
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey("studies.id"), nullable=False, index=True),
    Column("at", String(32), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("detail", Text, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("study_id", ForeignKey("studies.id"), primary_key=True, autoincrement=False),
    Column("token", String(32), nullable=False),  # of the search that owns the study, never used twice
    Column("host", String(255), nullable=False),
    Column("machine", String(512), nullable=False),  # the kernel and process namespace where `process` is valid
    Column("process", BigInteger, nullable=False),
    Column("process_began", BigInteger),  # clock ticks since the machine's start; NULL if unknown
    Column("since", String(32), nullable=False),
    Column("renewed_at", String(32), nullable=False),
)


def space_to_json(space: Space) -> str:
    """The space as JSON, in the form of a ``space:`` section."""
    return json.dumps({name: dimension.entry() for name, dimension in space.items()})


def space_from_json(text: str) -> Space:
    """The inverse of `space_to_json`."""
    return Space({name: DIMENSIONS[entry.pop("type")](**entry) for name, entry in json.loads(text).items()})


def figures_to_json(figures: FiguresOfMerit) -> str | None:
    """Several figures of merit as JSON; None for a single one, which has columns of its own."""
    pairs = zip(figures.names, figures.directions, strict=True)
    return json.dumps([{"name": name, "direction": way} for name, way in pairs]) if figures.are_several else None


def figures_from_json(
    text: str | None, direction: Direction, selection: Selection, configuration: str
) -> FiguresOfMerit:
    """The figures of merit in a row of `studies`. A single one has its name in the configuration."""
    if text is None:
        wanted = json.loads(configuration)
        name, is_training = wanted.get("figure_of_merit"), wanted.get("objective", "train") == "train"
        return read_figures_of_merit(name or VAL_LOSS, direction, selection, is_training=is_training)
    entries = json.loads(text)
    names, directions = (tuple(entry[key] for entry in entries) for key in ("name", "direction"))
    return FiguresOfMerit(names, directions, selection)
