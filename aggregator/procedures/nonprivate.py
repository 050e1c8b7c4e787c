"""Split conformal prediction on exact scores: what privacy is measured against."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import MARGINAL, Certificate
from confide.protocol.errors import check_probability


def split_conformal(scores: NDArray[Any], *, alpha: float) -> Certificate:
    """The ceil((n + 1)(1 - alpha))-th smallest score; 1 when n is too small for that rank."""
    check_probability("alpha", alpha)
    n = len(scores)
    # The product is rounded so that 0.9 * 10 counts as 9, not as a hair above it.
    rank = math.ceil(round((n + 1) * (1 - alpha), 9))
    threshold = float(np.partition(scores, rank - 1)[rank - 1]) if rank <= n else 1.0
    reason = f"too few records: rank {rank} of {n}" if rank > n else None
    return Certificate(
        method="non-private",
        variant="non-private",
        kind=MARGINAL,
        threshold=threshold,
        level=1 - alpha,
        alpha=alpha,
        n=n,
        epsilon=None,
        reason=reason,
        assumptions=("records are exchangeable",),
    )
