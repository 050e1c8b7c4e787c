"""The settings of methods that calibrate arrays, with their types, for those who check types."""

from pathlib import Path
from typing import Any, Literal, TypedDict


class CalibrationSettings(TypedDict, total=False):
    """The settings that `calibrate` takes besides its arguments; each belongs to some methods."""

    failure_probability: float
    max_corrupt: int
    owner_floor: int
    group_floor: int
    smallest_owner: int
    mixture: Literal["as-answered", "planned", "equal-owners"]
    joint: bool
    class_floor: int
    channel: str
    largest_set: int
    provider_data: Path | str
    mechanism: str
    bins: int | Literal["auto"]
    grid: str
    edges_file: Path | str
    beta: float
    guarantee: Literal["marginal", "PAC", "band"]
    privacy_delta: float
    by: Literal["", "class", "group"]
    group_column: str
    minimum_reports: int
    minimum_owners: int


class EvaluationSettings(CalibrationSettings, total=False):
    """Those that `evaluate` takes: arguments of `calibrate` that it only hands on, too."""

    model: Path | str | None
    name: str
    owners: Any
    groups: Any
