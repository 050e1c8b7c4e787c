"""The type of a classification score."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from confide.protocol.scores.ranking import Ranking

Array = NDArray[Any]


@dataclass(frozen=True)
class Score:
    """A conformity score in [0, 1], lower conforming better: an elementwise function of a ranking.

    `randomized` says whether it uses the ranking's uniform number `u`; only then do owners draw
    one. `parameters` are the keyword arguments the function is called with.
    """

    name: str
    function: Callable[..., Array]
    randomized: bool = False
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __call__(self, ranking: Ranking) -> Array:
        return self.function(ranking, **self.parameters)
