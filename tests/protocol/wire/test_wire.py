import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.campaigns.admission import Intake, Sent
from confide.protocol.channels.kinds import LABEL_CHANNELS, KaryRR, SubsetSelection
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.queries import LabelQuery
from confide.protocol.plan import Plan, digest, open_plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.packing import Batch, read_batch, read_query, write_batch, write_query
from tests.support.answers import NAME, QUERY, answer, bit_batch
from tests.support.owners import LABEL_PLAN, NOW, PLAN, POLICY, signed
from tests.support.places import ROOT

WIRE = ROOT / "confide" / "protocol" / "wire"

GOLDEN = {
    "plan": (
        "08011204746573741a046269747322096365727469666965642a0368707332036269743900000000000010404005499a9999"
        "999999b93f519a9999999999b93f58f02e606472200000000000000000000000000000000000000000000000000000000000"
        "00000078c0bde6d7068001c0fa89d906"
    ),
    "digest": ("aefaa3a7c42b6aae065c6d7a4a9cbadf8c43d6383cc7976fdbf39613610acb06"),
    "query": (
        "08011220aefaa3a7c42b6aae065c6d7a4a9cbadf8c43d6383cc7976fdbf39613610acb06180321000000000000d03f290000"
        "00000000e03f3210000000000000e03f000000000000e83f"
    ),
    "answer": (
        "08011a6108011220aefaa3a7c42b6aae065c6d7a4a9cbadf8c43d6383cc7976fdbf39613610acb0622300000000000000000"
        "08090a0b0c0d0e0f010000000000000018191a1b1c1d1e1f020000000000000028292a2b2c2d2e2f2a060000010000003201"
        "01"
    ),
}


def test_golden_bytes() -> None:
    """Plan, query and answer of version 1 serialise to these bytes, on every machine and for
    ever."""
    made = {
        "plan": PLAN.to_bytes(),
        "digest": NAME,
        "query": write_query(QUERY, plan=NAME, round_=3),
        "answer": answer(bit_batch(3)),
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
        {"method": "votes"},
        {"variant": "quick"},
        {"score": "x"},
        {"channel": "k-rr"},
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
        Plan(**{**PLAN.__dict__, **change})


@pytest.mark.parametrize("name", list(LABEL_CHANNELS))
def test_label_batches_come_back_as_they_were(name: str) -> None:
    """Reports of every channel survive packing, whatever does not fill a byte."""
    channel = LABEL_CHANNELS[name](k=5, epsilon=1.0)
    reports = channel.randomize(np.arange(7) % 5, SeededEntropy(1))
    probs = np.full((7, 5), 0.2, dtype=np.float32)
    batch = Batch(bit_batch(7).ids, reports, probabilities=probs)
    packed = write_batch(batch, channel=channel, plan=NAME, round_=0)
    back = read_batch(packed, query=LabelQuery(channel), plan=NAME, round_=0)
    assert np.array_equal(back.reports, reports)
    assert np.array_equal(back.ids, batch.ids)
    assert np.array_equal(back.probabilities, probs)  # type: ignore[arg-type]


def taken(*answers: bytes) -> tuple[Intake, list[str]]:
    intake = Intake(PLAN)
    intake.open(QUERY, 1)
    return intake, [
        str(wire.Code.Name(intake.admit(Sent(b"owner", data)).code)) for data in answers
    ]


def changed(**fields: bytes) -> bytes:
    packed = write_batch(bit_batch(10), channel=QUERY.channel, plan=NAME, round_=1)
    for name, value in fields.items():
        setattr(packed, name, value)
    return wire.Answer(version=1, batch=packed).SerializeToString()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xff\xff", "MALFORMED"),
        (b"", "WRONG_VERSION"),
        (wire.Answer(version=1, code="EXPIRED").SerializeToString(), "EXPIRED"),
        (answer(bit_batch(10), round_=0), "LATE"),
        (answer(bit_batch(10), round_=2), "WRONG_ROUND"),
        (answer(bit_batch(10), round_=1, plan=b"x" * 32), "WRONG_PLAN"),
        (changed(ids=b"x" * 17), "MALFORMED"),
        (changed(ids=b"x" * 160), "MALFORMED"),
        (changed(parts=b"\0"), "MALFORMED"),
        (changed(parts=b"\2\0" * 10), "OUT_OF_ALPHABET"),
        (changed(reports=b"\0"), "MALFORMED"),
        (changed(reports=b"\0\xff"), "MALFORMED"),
        (changed(probabilities=b"\0" * 4), "MALFORMED"),
    ],
)
def test_answers_that_are_not_in_order_have_no_effect(data: bytes, expected: str) -> None:
    """Each is rejected under its code, counted, and leaves the tally as it was."""
    intake, codes = taken(data)
    assert codes == [expected]
    assert intake.codes == {expected: 1}
    assert intake.tally().answers == (0, 0)  # type: ignore[union-attr]


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
        packed = write_batch(
            Batch(ids, reports, probabilities=shown), channel=channel, plan=NAME, round_=0
        )
        with pytest.raises(Refused) as refused:
            read_batch(packed, query=LabelQuery(channel), plan=NAME, round_=0)
        assert refused.value.code == wire.Code.OUT_OF_ALPHABET


def test_a_report_counts_once() -> None:
    """Sent again it is a duplicate; a batch that overlaps an earlier one adds only what is new."""
    first, overlapping = answer(bit_batch(10), round_=1), answer(bit_batch(10, first=5), round_=1)
    intake, codes = taken(first, first, overlapping)
    assert codes == ["OK", "DUPLICATE", "OK"]
    assert sum(intake.tally().answers) == 15  # type: ignore[union-attr, arg-type]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_not_raised(data: bytes) -> None:
    """Plans, queries and answers of random bytes end in a code on either side."""
    with pytest.raises(Refused):
        open_plan(data, trusted=POLICY.aggregators, now=NOW)
    with pytest.raises(Refused):
        read_query(data, plan=PLAN, plan_digest=NAME)
    intake, codes = taken(data)
    assert codes != ["OK"] or intake.tally().answers == (0, 0)  # type: ignore[union-attr]


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_damaged_answers_never_raise(place: int, flip: int) -> None:
    """One byte changed anywhere in an answer is rejected under a code, or changes what one owner
    could have said anyway."""
    data = bytearray(answer(bit_batch(10), round_=1))
    data[place % len(data)] ^= flip
    intake, _ = taken(bytes(data))
    assert sum(intake.tally().answers) in (0, 10)  # type: ignore[union-attr, arg-type]
