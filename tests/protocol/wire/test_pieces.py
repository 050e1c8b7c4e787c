"""Answers of owners as a whole, cut into pieces and put together again."""

from collections.abc import Callable

import numpy as np
import pytest

from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from confide.protocol.wire.service import PIECE_BYTES
from confide.protocol.wire.splitting import LEAST_PIECE, Pieces, message_reports, split_answer
from tests.support.training.federated_trainings import LONG, terms_of, training_plan, weights_answer

PLAN = training_plan(**LONG)
TERMS = terms_of(PLAN)
ANSWER = weights_answer(PLAN, np.linspace(-1, 1, TERMS.size, dtype=np.float32))


def pieces(most: int = PIECE_BYTES) -> list[wire.ReportBatch]:
    return [parse(wire.Answer, piece).batch for piece in split_answer(ANSWER, PLAN, most=most)]


def joined(parts: list[wire.ReportBatch], most: int = TERMS.answer_bytes) -> bytes | None:
    """Put pieces together; None if the last of them is missing."""
    found, whole = Pieces(), None
    for part in parts:
        assert whole is None
        whole = found.add(part, most=most)
    assert found.begun == (whole is None)
    return whole


@pytest.mark.parametrize("most", [LEAST_PIECE + 200, 700_000, PIECE_BYTES])
def test_pieces_come_back_as_the_same_bytes(most: int) -> None:
    """Whatever the size of pieces; no message is longer than that, and all are one report."""
    messages = list(split_answer(ANSWER, PLAN, most=most))
    assert max(map(len, messages)) <= most
    assert joined([parse(wire.Answer, one).batch for one in messages]) == ANSWER
    assert (message_reports(messages)[0], sum(message_reports(messages))) == (1, 1)


def test_what_fits_is_not_cut() -> None:
    """An answer of at most that many bytes is sent as it is."""
    assert list(split_answer(ANSWER, PLAN, most=len(ANSWER))) == [ANSWER]


def changed(parts: list[wire.ReportBatch], place: int, **values: object) -> list[wire.ReportBatch]:
    for name, value in values.items():
        setattr(parts[place], name, value)
    return parts


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda parts: parts[1:], "MALFORMED"),
        (lambda parts: [parts[0], parts[2]], "MALFORMED"),
        (lambda parts: [parts[0], parts[0]], "MALFORMED"),
        (lambda parts: [parts[1], parts[0]], "MALFORMED"),
        (lambda parts: changed(parts, 1, round=1), "MALFORMED"),
        (lambda parts: changed(parts, 1, ids=bytes([1]) * 16), "MALFORMED"),
        (lambda parts: changed(parts, 1, seeded=False), "MALFORMED"),
        (lambda parts: changed(parts, 1, body=b""), "MALFORMED"),
        (lambda parts: changed(parts, 0, body=parts[0].body[: LEAST_PIECE - 1]), "MALFORMED"),
        (lambda parts: changed(parts, 2, body=parts[2].body + b"\0"), "MALFORMED"),
        (lambda parts: changed(parts, 1, body_bytes=parts[1].body_bytes - 1), "MALFORMED"),
        (lambda parts: changed(parts, 0, body_bytes=TERMS.answer_bytes + 17), "TOO_LARGE"),
        (lambda parts: changed(parts, 0, body_bytes=2**63), "TOO_LARGE"),
    ],
)
def test_pieces_that_do_not_belong_together_are_refused(
    damage: Callable[[list[wire.ReportBatch]], list[wire.ReportBatch]], code: str
) -> None:
    """One that is missing, repeated, out of order, of another answer, too short or too long."""
    parts = pieces(LEAST_PIECE + 200)
    assert len(parts) == 3
    with pytest.raises(Refused) as refused:
        joined(damage(parts))
    assert wire.Code.Name(refused.value.code) == code


def test_an_answer_without_its_last_piece_is_none() -> None:
    """Nothing comes out before all pieces are there."""
    assert joined(pieces(LEAST_PIECE + 200)[:2]) is None
