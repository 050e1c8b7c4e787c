"""What advice is asked for: how many records, which promise, and what owners allow."""

from dataclasses import dataclass

from confide.protocol.errors import BadInput, check_epsilon, check_probability
from confide.protocol.scores.registry import find_label_score

# The score that is to be chosen.
BEST = "best"
# Rounds that the longest calibration takes.
ROUNDS = 8
FEWEST_RECORDS, MOST_RECORDS = 20, 10**9


@dataclass(frozen=True, kw_only=True)
class AdviceQuestion:
    """So many records, PAC coverage of 1 - alpha, an epsilon or a wanted size, what is allowed.

    `features_may_leave` also stands for the model's probabilities, which tell as much.
    """

    records: int
    alpha: float = 0.1
    failure_probability: float = 0.1
    epsilon: float | None = None
    size: float | None = None
    score: str = BEST
    rounds: int = ROUNDS
    owner_has_model: bool = False
    features_may_leave: bool = False
    trusted_aggregator: bool = False

    def __post_init__(self) -> None:
        if not FEWEST_RECORDS <= self.records <= MOST_RECORDS:
            raise BadInput(
                f"records is {self.records}; accepted are {FEWEST_RECORDS} to {MOST_RECORDS}"
            )
        check_probability("alpha", self.alpha)
        check_probability("failure probability", self.failure_probability)
        if self.alpha >= 0.5:
            raise BadInput(f"alpha is {self.alpha}; advice is accepted below 0.5")
        if self.epsilon is None and self.size is None:
            raise BadInput(
                "neither --epsilon nor --size is given; accepted is one of them, or both"
            )
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        if self.size is not None and not self.size > 0:
            raise BadInput(f"size is {self.size}; accepted is a mean number of labels above 0")
        if self.rounds < 1:
            raise BadInput(f"rounds is {self.rounds}; at least 1 is needed")
        if self.score != BEST:
            # A name stands for its default constants.
            find_label_score(self.score)
