import numpy as np
import pytest

from confide.protocol.dealing import deal, deal_by_column
from confide.protocol.errors import BadInput


def test_records_are_dealt_once_each() -> None:
    """Every record goes to one owner or to the test; a small concentration makes owners unlike each
    other."""
    labels = np.arange(4_000) % 26
    for concentration in (0.0, 0.2):
        shares, rest, _ = deal(
            labels, owners=10, records=3_000, concentration=concentration, seed=1
        )
        together = np.concatenate([*shares, rest])
        assert np.array_equal(np.sort(together), np.arange(4_000))
        spread = np.std([np.mean(labels[share] == 0) for share in shares if len(share)])
        assert (spread > 0.05) == (concentration > 0)
    with pytest.raises(BadInput, match="accepted"):
        deal(labels, owners=0, records=10, concentration=0, seed=1)
    shares, *_ = deal(labels, owners=6, records=3_000, sizes="1 1 4", seed=1)
    assert [len(share) for share in shares] == [250, 250, 1_000] * 2


def test_test_records_are_split_by_the_rule_of_the_others() -> None:
    """Every test record belongs to one owner: of its size, of its labels, or of its column."""
    labels = np.arange(4_000) % 26
    for given in ({"sizes": "1 1 4"}, {"concentration": 0.1}):
        shares, rest, tested = deal(labels, owners=6, records=3_000, seed=1, **given)
        assert np.array_equal(np.sort(np.concatenate(tested)), np.sort(rest))
        ratio = [len(test) / max(len(share), 1) for share, test in zip(shares, tested, strict=True)]
        assert np.allclose(ratio, 1 / 3, atol=0.1)
    holders = np.repeat(np.arange(3), (100, 300, 600))
    shares, rest, tested = deal_by_column(holders, records=800, seed=2)
    assert [set(holders[share]) for share in (*shares, *tested)] == [{0}, {1}, {2}] * 2
    together = np.concatenate([*shares, rest])
    assert np.array_equal(np.sort(together), np.arange(1_000))
    with pytest.raises(BadInput, match="accepted are 1 to 999"):
        deal_by_column(holders, records=1_000, seed=2)
