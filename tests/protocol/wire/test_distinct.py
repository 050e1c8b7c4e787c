import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.protocol.wire.distinct import FEW, any_twice

NUMBERS = st.integers(0, 3 * FEW)


@settings(max_examples=200, deadline=None)
@given(NUMBERS, st.sampled_from([0, 20, 53]), st.lists(NUMBERS, max_size=2))
def test_a_number_that_stands_twice_is_found(count: int, shift: int, again: list[int]) -> None:
    """Among few and among many, wherever their bits are."""
    numbers = [number << shift for number in (*range(count), *again)]
    shuffled = np.random.default_rng(count).permutation(np.array(numbers, dtype=np.uint64))
    assert any_twice(shuffled) == (len(set(numbers)) < len(numbers))
