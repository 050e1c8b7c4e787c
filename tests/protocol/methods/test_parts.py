"""Tallies keep owners apart: what each answered, beside the whole, in memory and stored."""

import json
from dataclasses import replace

import numpy as np
import pytest

from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.base import Batch
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.methods.partition import Groups
from confide.protocol.methods.parts import MOST_PARTS, BitTally, PartBits
from confide.protocol.wire.columns import Array
from confide.simulation.driver import BitUsers, LabelUsers

QUERY = BitQuery(Bit(epsilon=4.0), 0.0, 1.0, (0.25, 0.75))
RNG = np.random.default_rng(5)


def batch(n: int, *, sender: bytes) -> Batch:
    ids = RNG.integers(0, 256, (n, 16)).astype(np.uint8)
    columns = {"parts": RNG.integers(0, 2, n), "reports": RNG.integers(0, 2, n).astype(bool)}
    return Batch(ids, columns, sender=sender)


def nothing(shown: Array, _: Array) -> Array:
    raise AssertionError("bits are not scored")


BATCHES = [batch(40, sender=b"b"), batch(30, sender=b"a"), batch(0, sender=b"c")]
BATCHES += [batch(20, sender=b"b")]


def of_sender(sender: bytes) -> BitTally:
    return QUERY.tally([one for one in BATCHES if one.sender == sender], nothing)


def test_a_tally_of_bits_is_that_of_every_owner_too() -> None:
    """An owner's part is the tally of its own batches, and the parts add up to the whole."""
    tally = QUERY.tally(BATCHES, nothing)
    assert tally.keys == (b"a", b"b")
    for key in (b"a", b"b", b"nobody"):
        own = of_sender(key)
        assert (tally.of(key).answers, tally.of(key).ones) == (own.answers, own.ones)
    assert sum(tally.of(b"b").answers) == 60
    assert [tally.answers, tally.ones] == [
        tuple(sum(tally.of(key).__dict__[name][q] for key in tally.keys) for q in (0, 1))
        for name in ("answers", "ones")
    ]
    assert tally == QUERY.tally(BATCHES[::-1], nothing)


def test_a_stored_tally_has_its_parts_back() -> None:
    """Also one without, which an earlier version stored."""
    tally = QUERY.tally(BATCHES, nothing)
    values = json.loads(json.dumps(tally.to_json()))
    assert QUERY.tally_from_json(values) == tally
    del values["parts"]
    old = QUERY.tally_from_json(values)
    assert (old.answers, old.ones, old.keys) == (tally.answers, tally.ones, ())


def test_parts_that_do_not_add_up_are_refused() -> None:
    """A tally whose parts hold more ones, or fewer answers, than the whole cannot be made."""
    tally = QUERY.tally(BATCHES, nothing)
    part = tally.parts[b"a"]
    for changed in (PartBits(part.answers, {0: 0, 1: 0}), PartBits({0: 1}, {0: 1})):
        with pytest.raises(BadInput, match="do not add up"):
            replace(tally, parts={**tally.parts, b"a": changed})


def test_more_owners_than_a_tally_keeps_apart_have_no_parts() -> None:
    """The whole is counted all the same."""
    few = [batch(1, sender=bytes(divmod(i, 256))) for i in range(MOST_PARTS)]
    many = [*few, batch(1, sender=b"one more")]
    assert len(QUERY.tally(few, nothing).keys) == MOST_PARTS
    tally = QUERY.tally(many, nothing)
    assert (tally.keys, sum(tally.answers)) == ((), MOST_PARTS + 1)
    labels = LabelQuery(KaryRR(k=3, epsilon=1.0))
    shown = [replace(one, columns=_labelled(one)) for one in many]
    found = labels.tally(shown, lambda rows, _: rows)
    assert (found.keys, len(found.reports)) == ((), MOST_PARTS + 1)


def _labelled(one: Batch) -> dict[str, np.ndarray]:
    n = len(one)
    rows = np.full((n, 3), 1 / 3, dtype=np.float32)
    return {"reports": RNG.integers(0, 3, n), "probabilities": rows}


def test_reports_of_labels_keep_their_owner_and_their_order() -> None:
    """An owner's part is the tally of its own batches, in order; without a report it has none."""
    query = LabelQuery(KaryRR(k=3, epsilon=1.0))
    batches = [replace(one, columns=_labelled(one)) for one in BATCHES]
    for number, one in enumerate(batches):
        one.columns["probabilities"][:, 0] = number
    scores = lambda rows, _: rows  # noqa: E731
    tally = query.tally(batches, scores)
    assert tally.keys == (b"a", b"b")
    for key in (b"a", b"b", b"nobody"):
        own = query.tally([one for one in batches if one.sender == key], scores)
        assert (tally.of(key).reports == own.reports).all()
        assert (tally.of(key).scores == own.scores).all()


def test_a_division_of_its_own_keeps_other_parts_apart() -> None:
    """Groups are told apart by a column of the reports, whoever sent them."""
    groups = Groups("ward", ("low", "high"))
    named = [
        replace(one, columns=one.columns | {"groups": one.columns["parts"]}) for one in BATCHES
    ]
    tally = replace(QUERY, division=groups).tally(named, nothing)
    low, high = (key for _, key in groups.named(tally.keys))
    assert tally.of(low).answers == (tally.answers[0], 0)
    assert tally.of(high).ones == (0, tally.ones[1])


def test_populations_in_arrays_keep_their_parts_apart() -> None:
    """In process a part is an entry of an array instead of a sender."""
    scores, owners = RNG.random(900), np.repeat(["x", "y", "z"], 300)
    tally = BitUsers(scores, SeededEntropy(1), owners)(QUERY)
    assert [sum(tally.of(key).answers) for key in (b"x", b"y", b"z")] == [300, 300, 300]
    assert not BitUsers(scores, SeededEntropy(1))(QUERY).parts
    labels = LabelQuery(KaryRR(k=3, epsilon=1.0))
    rows = RNG.random((900, 3))
    found = LabelUsers(rows, np.zeros(900, dtype=np.int64), SeededEntropy(1), owners)(labels)
    assert (found.of(b"y").scores == rows[300:600]).all()
