import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.campaigns.admission import Admission, Sent
from confide.protocol.channels.base import Channel
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.channels.subset_selection import SubsetSelection
from confide.protocol.channels.unary_encoding import UnaryEncoding
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.base import Batch
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.plan import digest, open_plan, read_query, write_query
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION, serialise
from confide.protocol.wire.packing import read_batch, write_batch
from tests.support.cards.central import TRUSTED
from tests.support.owners.answers import NAME, QUERY, answer, bit_batch
from tests.support.owners.owners import KEY, LABEL_PLAN, NOW, PLAN, POLICY, changed, signed
from tests.support.repository.places import ROOT

WIRE = ROOT / "confide" / "protocol" / "wire"

GOLDEN = {
    "plan": (
        "08021204746573741a0462697473221d0a09636572746966696564110000000000001040199a9999999999b9"
        "3f2a036870733005399a9999999999b93f40f02e48645a200000000000000000000000000000000000000000"
        "00000000000000000000000060c0bde6d70668c0fa89d906"
    ),
    "digest": ("24297c2150056658f782acfdb03c11b2b36e672a5907bfbe53fdb216783ba8d3"),
    "query": (
        "0802122024297c2150056658f782acfdb03c11b2b36e672a5907bfbe53fdb216783ba8d31803222409000000"
        "000000d03f11000000000000e03f1a10000000000000e03f000000000000e83f"
    ),
    "answer": (
        "08021a630802122024297c2150056658f782acfdb03c11b2b36e672a5907bfbe53fdb216783ba8d322300000"
        "00000000000008090a0b0c0d0e0f010000000000000018191a1b1c1d1e1f020000000000000028292a2b2c2d"
        "2e2f320b0a06000001000000120101"
    ),
    "equal owners": "0a09636572746966696564110000000000001040199a9999999999b93f38016801",
}


def test_golden_bytes() -> None:
    """Plan, query, answer and a mixture of owners of version 2 serialise to these bytes, on every
    machine and for ever."""
    made = {
        "plan": PLAN.to_bytes(),
        "digest": NAME,
        "query": write_query(QUERY, plan=NAME, round_=3),
        "answer": answer(bit_batch(3)),
        "equal owners": changed(PLAN, planned_mixture=True, equal_owners=True).terms.to_bytes(),
    }
    assert {name: data.hex() for name, data in made.items()} == GOLDEN


def test_generated_code_is_that_of_the_proto(tmp_path: Path) -> None:
    """Compiling the descriptions afresh gives the committed modules."""
    command = [
        "-m",
        "grpc_tools.protoc",
        f"-I{ROOT}",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
    ]
    sources = [str(WIRE / name) for name in ("wire.proto", "service.proto")]
    subprocess.run([sys.executable, *command, *sources], check=True, timeout=60)
    for name in ("wire_pb2.py", "wire_pb2.pyi", "service_pb2.py", "service_pb2.pyi"):
        assert (tmp_path / WIRE.relative_to(ROOT) / name).read_text() == (WIRE / name).read_text()


def test_plans_come_back_as_they_were() -> None:
    """A signed plan opens to the plan that was signed, fields and digest alike."""
    for plan in (PLAN, LABEL_PLAN):
        assert open_plan(signed(plan), trusted=POLICY.aggregators, now=NOW) == (
            plan,
            digest(plan.to_bytes()),
        )


@pytest.mark.parametrize(
    "change",
    [
        {"variant": "quick"},
        {"equal_owners": True},
        {"score": "x"},
        {"epsilon": 0.0},
        {"alpha": 1.0},
        {"delta": 0.0},
        {"campaign": ""},
        {"expected_records": 0},
        {"max_corrupt": -1},
        {"model": b"short"},
        {"expires": PLAN.issued},
    ],
)
def test_impossible_plans_are_not_made(change: dict[str, Any]) -> None:
    """Every field checks itself, in code and when it comes over the wire."""
    with pytest.raises(BadInput, match=r"accepted|must"):
        changed(PLAN, **change)


@pytest.mark.parametrize(
    ("method", "terms"),
    [
        ("votes", PLAN.terms.to_bytes()),
        ("bits", LABEL_PLAN.terms.to_bytes()),
        ("bits", TRUSTED.terms.to_bytes()),
        ("labels", PLAN.terms.to_bytes()),
        ("central", PLAN.terms.to_bytes()),
        ("training", TRUSTED.terms.to_bytes()),
        ("bits", PLAN.terms.to_bytes() + b"\xf8\x07\x01"),
        ("bits", b"\xff"),
        ("bits", b""),
    ],
)
def test_terms_that_are_not_the_methods_are_refused(method: str, terms: bytes) -> None:
    """Of no method, of another, with a field too many, or none at all: however well signed."""
    message = wire.Plan.FromString(PLAN.to_bytes())
    message.method, message.terms = method, terms
    data = serialise(message)
    signature = KEY.sign(b"confide plan v2\0" + data)
    public = KEY.public_key().public_bytes_raw()
    plan = wire.SignedPlan(plan=data, key=public, signature=signature)
    with pytest.raises(Refused) as refused:
        open_plan(serialise(plan), trusted=POLICY.aggregators, now=NOW)
    assert refused.value.code == wire.Code.MALFORMED


@pytest.mark.parametrize(
    ("channel", "reports", "expected"),
    [
        (KaryRR(k=300, epsilon=1.0), np.array([0, 1, 299]), "000001002b01"),
        (SubsetSelection(k=5, epsilon=1.0), np.eye(5, dtype=np.bool_)[[0, 3]], "0101"),
        (UnaryEncoding(k=5, epsilon=1.0), np.ones((2, 5), dtype=np.bool_), "ff03"),
        (Bit(epsilon=1.0), np.arange(9) % 2 == 0, "5501"),
    ],
    ids=["k-rr", "subset", "unary", "bit"],
)
def test_packed_reports_are_these_bytes(channel: Channel, reports: Any, expected: str) -> None:
    """The encoding of each channel's reports never changes, and a byte too many is refused."""
    data = channel.pack(reports)
    assert data.hex() == expected
    assert len(data) == -(-len(reports) * channel.report_bits // 8)
    channel.check(data, len(reports))
    assert np.array_equal(channel.unpack(data, len(reports)), reports)
    with pytest.raises(Refused) as refused:
        channel.check(data + b"\0", len(reports))
    assert refused.value.code == wire.Code.MALFORMED


@pytest.mark.parametrize("name", list(LABEL_CHANNELS))
def test_label_batches_come_back_as_they_were(name: str) -> None:
    """Reports of every channel survive packing, whatever does not fill a byte."""
    channel = LABEL_CHANNELS[name](k=5, epsilon=1.0)
    reports = channel.randomize(np.arange(7) % 5, SeededEntropy(1))
    probs = np.full((7, 5), 0.2, dtype=np.float32)
    batch = Batch(bit_batch(7).ids, {"reports": reports, "probabilities": probs})
    packed = write_batch(batch, query=LabelQuery(channel), plan=NAME, round_=0)
    back = read_batch(packed, query=LabelQuery(channel), plan=NAME, round_=0)
    assert np.array_equal(back.ids, batch.ids)
    for column, values in batch.columns.items():
        assert np.array_equal(back.columns[column], values)


def taken(*answers: bytes) -> tuple[Any, list[str]]:
    intake = Admission(PLAN)
    intake.open(QUERY, 1)
    return intake, [
        str(wire.Code.Name(intake.admit(Sent(b"owner", data)).code)) for data in answers
    ]


def with_ids(ids: bytes) -> bytes:
    packed = write_batch(bit_batch(10), query=QUERY, plan=NAME, round_=1)
    packed.ids = ids
    return serialise(wire.Answer(version=VERSION, batch=packed))


def with_body(more: bytes = b"", **columns: bytes) -> bytes:
    """An answer whose columns were changed, or whose body goes on with these bytes."""
    packed = write_batch(bit_batch(10), query=QUERY, plan=NAME, round_=1)
    body = wire.BitReports.FromString(packed.body)
    for name, value in columns.items():
        setattr(body, name, value)
    packed.body = serialise(body) + more
    return serialise(wire.Answer(version=VERSION, batch=packed))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xff\xff", "MALFORMED"),
        (b"", "WRONG_VERSION"),
        (wire.Answer(version=VERSION, code="EXPIRED").SerializeToString(), "EXPIRED"),
        (answer(bit_batch(10), round_=0), "LATE"),
        (answer(bit_batch(10), round_=2), "WRONG_ROUND"),
        (answer(bit_batch(10), round_=1, plan=b"x" * 32), "WRONG_PLAN"),
        (with_ids(b"x" * 17), "MALFORMED"),
        (with_ids(b"x" * 160), "MALFORMED"),
        (with_body(parts=b"\0"), "MALFORMED"),
        (with_body(parts=b"\2\0" * 10), "OUT_OF_ALPHABET"),
        (with_body(reports=b"\0"), "MALFORMED"),
        (with_body(reports=b"\0\xff"), "MALFORMED"),
        # A column that bits do not have: the fourth of a body.
        (with_body(b"\x22\x04\0\0\0\0"), "MALFORMED"),
        (with_body(b"\xff"), "MALFORMED"),
    ],
)
def test_answers_that_are_not_in_order_have_no_effect(data: bytes, expected: str) -> None:
    """Each is rejected under its code, counted, and leaves the tally as it was."""
    intake, codes = taken(data)
    assert codes == [expected]
    assert intake.codes == {expected: 1}
    assert intake.tally().answers == (0, 0)


def test_reports_outside_the_alphabet_are_rejected() -> None:
    """A label that does not exist, a subset of the wrong size, probabilities that are none."""
    probs = np.full((2, 5), 0.2, dtype=np.float32)
    ids = bit_batch(2).ids
    k_rr, subset = KaryRR(k=5, epsilon=1.0), SubsetSelection(k=5, epsilon=0.1)
    cases = [
        (k_rr, np.array([4, 5]), probs),
        (subset, np.ones((2, 5), dtype=np.bool_), probs),
        (k_rr, np.array([0, 1]), probs * 2),
        (k_rr, np.array([0, 1]), np.full_like(probs, np.nan)),
    ]
    for channel, reports, shown in cases:
        batch = Batch(ids, {"reports": reports, "probabilities": shown})
        packed = write_batch(batch, query=LabelQuery(channel), plan=NAME, round_=0)
        with pytest.raises(Refused) as refused:
            read_batch(packed, query=LabelQuery(channel), plan=NAME, round_=0)
        assert refused.value.code == wire.Code.OUT_OF_ALPHABET


def test_a_report_counts_once() -> None:
    """Sent again it is a duplicate; a batch that overlaps an earlier one adds only what is new."""
    first, overlapping = answer(bit_batch(10), round_=1), answer(bit_batch(10, first=5), round_=1)
    intake, codes = taken(first, first, overlapping)
    assert codes == ["OK", "DUPLICATE", "OK"]
    assert sum(intake.tally().answers) == 15


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_not_raised(data: bytes) -> None:
    """Plans, queries and answers of random bytes end in a code on either side."""
    with pytest.raises(Refused):
        open_plan(data, trusted=POLICY.aggregators, now=NOW)
    with pytest.raises(Refused):
        read_query(data, plan=PLAN, plan_digest=NAME)
    intake, codes = taken(data)
    assert codes != ["OK"] or intake.tally().answers == (0, 0)


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_damaged_answers_never_raise(place: int, flip: int) -> None:
    """One byte changed anywhere in an answer is rejected under a code, or changes what one owner
    could have said anyway."""
    data = bytearray(answer(bit_batch(10), round_=1))
    data[place % len(data)] ^= flip
    intake, _ = taken(bytes(data))
    assert sum(intake.tally().answers) in (0, 10)
