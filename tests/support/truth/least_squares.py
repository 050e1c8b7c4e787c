"""Records of linear regression whose truth is known, and data sets with one record more."""

from typing import Any

import numpy as np


def made_up(m: int, columns: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows with an intercept, and targets around a line, all within [-1, 1]."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (m, columns))
    rows[:, -1] = 1.0
    truth = np.linspace(-1, 1, columns) / columns
    return rows, np.clip(rows @ truth + rng.normal(0, 0.2, m), -1, 1)


def one_more(records: tuple[Any, Any], row: Any, target: float) -> tuple[Any, Any]:
    return np.vstack([records[0], row]), np.append(records[1], target)
