import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.campaigns.report_ids import ReportIds

NAMES = st.integers(0, 7) | st.integers(0, 20_000)
# Of each name many ids, so that the table grows.
MANY = 64


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.lists(NAMES, max_size=60), st.booleans()), max_size=12))
def test_what_is_taken_back_was_never_there(groups: list[tuple[list[int], bool]]) -> None:
    """Also where the table has grown for it, and where many are sent together."""
    known, seen = ReportIds(), set[int]()
    for group, stays in groups:
        names = [name * MANY + more for name in group for more in range(MANY)]
        ids = np.array([names, names], dtype=np.uint64).T.copy().view(np.uint8)
        expected = [
            name not in seen and place // MANY == group.index(name // MANY)
            for place, name in enumerate(names)
        ]
        assert known.add(ids).tolist() == expected
        if stays:
            seen |= set(names)
        else:
            known.take_back()
