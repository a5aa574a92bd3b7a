"""What ``algorithm:`` may say."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict


class AllReduce(BaseModel):
    """Synchronous: every step all workers take the mean gradient over all their samples."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["allreduce"] = "allreduce"


def _named(value: Any) -> Any:
    """``algorithm: allreduce`` is short for ``algorithm: {name: allreduce}``."""
    return {"name": value} if isinstance(value, str) else value


AlgorithmConfiguration = Annotated[AllReduce, BeforeValidator(_named)]
