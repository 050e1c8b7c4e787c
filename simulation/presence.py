"""Which users of a simulation answer a round."""

import numpy as np
from numpy.typing import NDArray

from confide.protocol.simulated.attendance import Attendance


class Presence:
    """The users of owners that stay away, miss rounds or are late; called once per round, in order.

    `owners` has the number of its owner for every user.
    """

    def __init__(self, attendance: Attendance, owners: NDArray[np.int64]) -> None:
        self._attendance, self._owners, self._round = attendance, owners, 0

    def __call__(self, asked: slice) -> NDArray[np.bool_]:
        """Tell, of the users asked in the next round, whose answers arrive in time."""
        arriving = self._attendance.arriving(self._round)
        self._round += 1
        return arriving[self._owners[asked]]
