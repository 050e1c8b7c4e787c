"""Watches the threshold of a card: asks fresh records round after round, until an alarm.

There is no search and no release. The result is an alarm that coverage is below 1 - alpha, or that
none was raised in the rounds of the plan.
"""

from collections.abc import Generator

from confide.protocol.certificate import WATCH
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.monitor import MonitorTerms
from confide.protocol.methods.parts import BitTally
from confide.protocol.plan import Plan
from confide.protocol.watch import MonitorCertificate, WatchedRound

MonitorProcedure = Generator[BitQuery, BitTally, MonitorCertificate]


def of_plan(plan: Plan) -> MonitorProcedure:
    """Make the procedure of a plan of this method; a round that nobody answered is not kept."""
    terms = MonitorTerms.of(plan.terms)
    query, rounds = terms.query(), []
    tallies: list[BitTally] = []
    for _ in range(terms.periods):
        tally = yield query
        (n,), (ones,) = tally.answers, tally.ones
        if not n:
            continue
        tallies.append(tally)
        found = terms.alarm(tallies, alpha=plan.alpha)
        rounds.append(WatchedRound(n, ones, found.log_evidence, found.needed))
        if found.raised:
            break
    return MonitorCertificate(
        method=terms.method,
        variant=terms.variant,
        kind=WATCH,
        threshold=terms.threshold,
        level=0.0,
        alpha=plan.alpha,
        delta=terms.delta,
        n=sum(one.n for one in rounds),
        channel=query.channel.name,
        epsilon=query.channel.epsilon,
        max_corrupt=terms.max_corrupt,
        rounds=tuple(rounds),
    )
