"""Public limits of features, one pair for each, from a small TOML, JSON or CSV file."""

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.scaling import public_scaling
from confide.protocol.errors import BadInput

Array = NDArray[Any]
Limits = tuple[Any, Any]

ACCEPTED = (
    "accepted are .toml and .json with two lists `low` and `high`, a number for each feature, and "
    ".csv with columns low and high, a line for each feature"
)


def read_limits(path: Path) -> tuple[Array, Array]:
    """The lowest and the highest value of every feature, in the order of the features."""
    try:
        found = _READERS[path.suffix](path)
        low, high = (np.array(found[name], dtype=np.float64) for name in ("low", "high"))
        if low.ndim != 1 or low.shape != high.shape or not low.size:
            raise ValueError(f"low has shape {low.shape} and high {high.shape}")
        public_scaling(low, high)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except KeyError as error:
        what = "its name ends otherwise" if path.suffix not in _READERS else f"no {error}"
        raise BadInput(f"{path} cannot be read as limits: {what}; {ACCEPTED}") from None
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as limits: {error}; {ACCEPTED}") from None
    return low, high


def _csv(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in ("low", "high")}


_READERS: dict[str, Any] = {
    ".toml": lambda path: tomllib.loads(path.read_text(encoding="utf-8-sig")),
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8-sig")),
    ".csv": _csv,
}
