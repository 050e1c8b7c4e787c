import numpy as np
import pytest

from confide.protocol.errors import BadInput
from confide.protocol.simulated.attendance import Attendance

OWNERS = 4_000


def test_shares_of_owners_and_rounds_are_those_asked_for() -> None:
    """Each to 5 standard deviations over 4,000 owners; rounds are independent, owners who stay away
    and slow ones are the same in all of them."""
    given = Attendance(
        owners=OWNERS, seed=7, dropout=0.1, round_dropout=0.2, stragglers=0.3, lateness=0.5
    )
    assert given.anyone_missing
    for round_ in range(3):
        missing, late = given.missing(round_), given.late(round_)
        assert abs(missing.mean() - (1 - 0.9 * 0.8)) < 5 * 0.5 / OWNERS**0.5
        assert abs(late.mean() - 0.15) < 5 * 0.36 / OWNERS**0.5
        assert (missing | ~given.away).all()
        assert np.array_equal(given.arriving(round_), ~(missing | late))
    assert abs(np.mean(given.missing(0)[~given.away] & given.missing(1)[~given.away]) - 0.04) < 0.02
    both = (given.late(0) & given.late(1)).mean()
    # A quarter of the slow ones; 0.0225 if everybody could be slow.
    assert abs(both - 0.075) < 0.02


def test_nobody_is_missing_by_default() -> None:
    """Everybody answers in time."""
    given = Attendance(owners=10, seed=1)
    assert not given.anyone_missing
    assert given.arriving(0).all()


@pytest.mark.parametrize(
    "wrong", [{"dropout": 1.0}, {"round_dropout": -0.1}, {"stragglers": 2.0}, {"lateness": 1.1}]
)
def test_other_shares_are_refused(wrong: dict[str, float]) -> None:
    """If nobody ever answered there would be no campaign."""
    with pytest.raises(BadInput, match="accepted are shares"):
        Attendance(owners=1, seed=1, **wrong)
