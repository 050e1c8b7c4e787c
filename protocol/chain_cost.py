"""What the calibrations of a chain cost each record."""

import math
from typing import NamedTuple

from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.registry import METHODS


class ChainCost(NamedTuple):
    """What a calibration of a chain, method:variant, costs each record that it asks."""

    campaign: str
    epsilon: float
    delta: float

    @property
    def on_training_records(self) -> bool:
        """Whether it asks the records that trained the model."""
        return METHODS[self.campaign.partition(":")[0]].on_training_records

    def check(self) -> None:
        """Refuse a method that is not known, and what no calibration costs."""
        check_choice("method of the chain", self.campaign.partition(":")[0], METHODS)
        if not (0 < self.epsilon < math.inf and 0 <= self.delta < 1):
            raise BadInput(
                f"{self.campaign} of the chain costs epsilon {self.epsilon} and delta "
                f"{self.delta}; accepted are positive numbers, and a delta below 1"
            )
