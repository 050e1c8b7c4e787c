import numpy as np
import pytest

from confide.protocol.embedded import deal
from confide.protocol.errors import BadInput


def test_records_are_dealt_once_each() -> None:
    """Every record goes to one owner or to the test; a small concentration makes owners unlike each
    other."""
    labels = np.arange(4_000) % 26
    for concentration in (0.0, 0.2):
        shares, rest = deal(labels, owners=10, records=3_000, concentration=concentration, seed=1)
        together = np.concatenate([*shares, rest])
        assert np.array_equal(np.sort(together), np.arange(4_000))
        spread = np.std([np.mean(labels[share] == 0) for share in shares if len(share)])
        assert (spread > 0.05) == (concentration > 0)
    with pytest.raises(BadInput, match="accepted"):
        deal(labels, owners=0, records=10, concentration=0, seed=1)
    shares, _ = deal(labels, owners=6, records=3_000, sizes="1 1 4", seed=1)
    assert [len(share) for share in shares] == [250, 250, 1_000] * 2
