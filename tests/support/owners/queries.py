"""Queries of the tests' plans, and the code of an answer."""

from typing import Any

from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.plan import Plan, digest, write_query
from confide.protocol.wire import wire_pb2 as wire
from tests.support.owners.owners import PLAN, channel_of


def bit_query(
    *thresholds: float, start: float = 0.0, stop: float = 1.0, round_: int = 0, plan: Any = PLAN
) -> bytes:
    query = BitQuery(Bit(epsilon=plan.epsilon), start, stop, thresholds)
    return write_query(query, plan=digest(plan.to_bytes()), round_=round_)


def label_query(plan: Plan) -> bytes:
    return write_query(LabelQuery(channel_of(plan)), plan=digest(plan.to_bytes()), round_=0)


def code(answer: bytes) -> str:
    return str(wire.Code.Name(wire.Answer.FromString(answer).code))
