import numpy as np
import pytest

from confide.protocol.errors import BadInput
from confide.protocol.simulated.dealing import _drawn, deal, deal_by_column


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


def test_a_tilt_shifts_what_is_dealt_and_not_the_test() -> None:
    """Owners' records are drawn by their weights from those that are not of the test."""
    value = np.random.default_rng(0).normal(size=20_000)
    labels = (value > 0).astype(np.int64)
    dealt = deal(labels, owners=5, records=8_000, tilt=np.exp(value), seed=1)
    held = np.concatenate(dealt.shares)
    assert not {*held.tolist()} & {*dealt.test.tolist()}
    assert (len(held), len(dealt.test)) == (8_000, 12_000)
    # A normal law with weights exp(x) is the same law moved by 1.
    assert abs(value[held].mean() - 1) < 0.1
    assert abs(value[dealt.test].mean()) < 0.05


def test_owners_are_drawn_as_one_by_one() -> None:
    """What a generator gives for each label by itself, but in one pass."""
    labels = np.random.default_rng(1).integers(0, 4, 300)
    weights = np.random.default_rng(2).dirichlet(np.ones(7), 4)
    one_by_one = np.random.default_rng(3)
    expected = [one_by_one.choice(7, p=weights[label]) for label in labels]
    assert _drawn(labels, weights, np.random.default_rng(3)).tolist() == expected
