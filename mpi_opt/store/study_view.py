"""The SQL view of a study: a row for each trial, a column for each hyperparameter."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Dialect, literal
from sqlalchemy.dialects import postgresql, sqlite

from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Categorical, Dimension, Integer, Real, Space

FIRST_COLUMNS = ("number", "state", "figure_of_merit", "uncertainty", "duration_s")
"""The first columns of the view of a study; those of figures of merit and hyperparameters follow."""

MAX_BIGINT = 2**63 - 1

RESERVED = {"nothing"}.union(*(kind.dialect().identifier_preparer.reserved_words for kind in (sqlite, postgresql)))
"""Words that are names only in double quotes, in SQLite or in PostgreSQL. SQLAlchemy's list for SQLite lacks one."""


@dataclass(frozen=True)
class StudyColumns:
    """The names of the columns of a study. They differ even if case is ignored.

    Attributes:
        figures: Figure of merit -> the columns of its value and of its uncertainty; empty for a single one.
        pareto: The column that marks the Pareto front; None with a single figure of merit.
        parameters: Hyperparameter -> its column.
    """

    figures: dict[str, tuple[str, str]]
    pareto: str | None
    parameters: dict[str, str]

    @classmethod
    def of(cls, space: Space, figures: FiguresOfMerit, others: Collection[str] = FIRST_COLUMNS) -> StudyColumns:
        """Names the columns of a study, which also has the columns `others`.

        Names that are taken become ``merit_NAME`` (figure of merit) or ``parameter_NAME`` (hyperparameter).
        """
        taken = {column.lower() for column in others}

        def untaken(column: str, prefix: str) -> str:
            while column.lower() in taken:
                column = f"{prefix}_{column}"
            taken.add(column.lower())
            return column

        names = figures.names if figures.are_several else ()
        columns = {name: (untaken(name, "merit"), untaken(f"{name}_uncertainty", "merit")) for name in names}
        pareto = untaken("pareto", "trial") if names else None
        return cls(columns, pareto, {name: untaken(name, "parameter") for name in space})


def quoted(name: str) -> str:
    """`name` in a query for SQLite and PostgreSQL: in double quotes unless it is lower case and not a word of SQL."""
    is_plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in RESERVED
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def view_name(study: str, taken: Collection[str], dialect: Dialect) -> str:
    """``study_NAME`` with every character but letters, digits and _ replaced; numbered if the name is `taken`.

    Names are cut to the length that the database supports (63 characters in PostgreSQL).
    """
    longest = dialect.max_identifier_length
    first = "study_" + re.sub(r"[^A-Za-z0-9_]", "_", study)
    name, n = first[:longest], 1
    while name.lower() in {other.lower() for other in taken}:
        n += 1
        suffix = f"_{n}"
        name = first[: longest - len(suffix)] + suffix
    return name


def create_view(name: str, study_id: int, space: Space, figures: FiguresOfMerit, dialect: Dialect) -> str:
    """The statement that creates a study's view, with the columns of `StudyColumns`."""
    quote = dialect.identifier_preparer.quote_identifier
    named = StudyColumns.of(space, figures)
    columns = list(FIRST_COLUMNS)
    for figure, (value, uncertainty) in named.figures.items():
        columns.append(f"{_figure('value', figure, dialect)} AS {quote(value)}")
        columns.append(f"{_figure('uncertainty', figure, dialect)} AS {quote(uncertainty)}")
    if named.pareto is not None:
        columns.append(f"pareto AS {quote(named.pareto)}")
    for parameter, column in named.parameters.items():
        columns.append(f"{_extracted(parameter, space[parameter], dialect)} AS {quote(column)}")
    return f"CREATE VIEW {quote(name)} AS SELECT {', '.join(columns)} FROM trials WHERE study_id = {int(study_id)}"


def _figure(column: str, name: str, dialect: Dialect) -> str:
    """SQL for one figure of merit, or for its uncertainty, of a trial."""
    wanted = f"f.trial_id = trials.id AND f.name = {_text(name, dialect)}"
    return f"(SELECT f.{column} FROM figures_of_merit f WHERE {wanted})"


def _extracted(parameter: str, dimension: Dimension, dialect: Dialect) -> str:
    """SQL for one value in the column `parameters`, with the type of its dimension."""
    if dialect.name == "postgresql":
        return f"CAST(CAST(parameters AS json) ->> {_text(parameter, dialect)} AS {_sql_type(dimension)})"
    if dialect.name == "sqlite" and '"' in parameter:  # which a path in SQLite cannot contain
        return f"(SELECT value FROM json_each(parameters) WHERE key = {_text(parameter, dialect)})"
    path = _text(f"$.{json.dumps(parameter, ensure_ascii=False)}", dialect)
    function = "json_extract" if dialect.name == "sqlite" else "JSON_VALUE"
    return f"{function}(parameters, {path})"


def _text(value: str, dialect: Dialect) -> str:
    return str(literal(value).compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def _sql_type(dimension: Dimension) -> str:
    if isinstance(dimension, Real):
        return "double precision"
    if isinstance(dimension, Integer):
        return "bigint"
    categories = dimension.categories if isinstance(dimension, Categorical) else ()
    # bool is tested first, because True is an int; integers beyond 64 bits are exact as text only
    known = [category for category in categories if category is not None]
    kinds = {type(category) for category in known}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int} and all(abs(category) <= MAX_BIGINT for category in known if isinstance(category, int)):
        return "bigint"
    return "double precision" if kinds and kinds <= {int, float} else "text"
