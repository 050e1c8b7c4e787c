"""One trial of an evaluation: which records calibrate, which test, and what is drawn."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.protocol.exact.sampling import Entropy
from confide.simulation.presence import Presence


class Trial(NamedTuple):
    """Rows to calibrate (and train) on, rows to test on, and the randomness of the trial.

    `u` holds a uniform number for every record, for randomised scores. `presence` says which of the
    calibration rows answer, if not all do, `owners` whose each of them is, and `tested` whose each
    test row is.
    """

    calibration: NDArray[np.int64]
    test: NDArray[np.int64]
    entropy: Entropy
    u: NDArray[np.float64] | None = None
    presence: Presence | None = None
    owners: NDArray[Any] | None = None
    tested: NDArray[Any] | None = None

    @property
    def arrived(self) -> NDArray[np.int64]:
        """The calibration rows that answer a trial of one round; ask once."""
        if self.presence is None:
            return self.calibration
        return self.calibration[self.presence(slice(0, len(self.calibration)))]
