"""What an aggregator could find of owners in reports that a shuffler handed over."""

from collections.abc import Iterable, Sequence

import numpy as np


def neighbours(arrived: Sequence[bytes], handed: Sequence[bytes]) -> int:
    """How many reports that arrived one after the other stand beside each other as handed over.

    In a uniform order of n reports a pair does with probability 2/n, so about two of them do.
    """
    at = {report: place for place, report in enumerate(handed)}
    places = np.array([at[report] for report in arrived])
    return int(np.count_nonzero(np.abs(np.diff(places)) == 1))


def traces(held: bytes, names: Iterable[bytes]) -> list[bytes]:
    """Those names, ids or reports that occur in what is held."""
    return [name for name in names if name in held]


# More neighbours than a uniform order has: their number is about Poisson with mean 2, so it is
# above this with probability below 1e-12.
MOST_NEIGHBOURS = 22
