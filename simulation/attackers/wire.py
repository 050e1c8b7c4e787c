"""Attacks on the path of real campaigns: owners with policy and ledger, wire format, admission.

replay     every answer arrives three times, once more from another owner, and again when the
           next round is open
invented   an owner's file holds many times the records that it has; those added are made up and
           have whatever label the model predicts
poisoned   an owner has the records it says, and its file the labels that the model predicts
"""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import Outcome, run_campaign
from confide.client.ledger.ledger import Ledger
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.client.simulated import SIMULATION_POLICY
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.plan import Plan, sign_plan
from confide.protocol.scores.registry import find_score
from confide.protocol.simulated.settings import ALWAYS, EMBEDDED_MODEL, SIMULATION_KEY
from confide.simulation.attackers.lies import LYING
from confide.simulation.data.population import Predictions
from confide.simulation.planning import plan as make_plan

HONEST, REPLAY, INVENTED, POISONED = "honest", "replay", "invented", "poisoned"
KINDS = (REPLAY, INVENTED, POISONED)
OWNERS = 4
# How many times its records an owner of invented ones has.
TIMES = 8.0


@dataclass(frozen=True)
class Wired:
    """A campaign over the wire, with or without an attack by the last of its owners.

    An owner of invented records has `times` its records; the certificate allows for `max_corrupt`.
    """

    population: Predictions
    method: str = "bits:one-shot"
    epsilon: float = 4.0
    n: int = 4_000
    seed: int = 0
    times: float = TIMES
    max_corrupt: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method.partition(":")[0], LYING)
        if self.times < 1:
            raise BadInput(f"times is {self.times}; accepted are numbers from 1")
        if not OWNERS <= self.n <= len(self.population):
            raise BadInput(
                f"n is {self.n}; {self.population.name} has {len(self.population)} records, so "
                f"accepted are {OWNERS} to that"
            )

    @cached_property
    def plan(self) -> Plan:
        """The plan of the campaign, which is the same at any time: it decides seeded draws."""
        made = make_plan(
            self.method,
            records=self.n,
            labels=int(self.population.results.shape[1]),
            model=EMBEDDED_MODEL,
            epsilon=self.epsilon,
            max_corrupt=self.max_corrupt,
        )
        return replace(made, issued=ALWAYS[0], expires=ALWAYS[1])

    def run(self, kind: str) -> Outcome:
        """Run the campaign under an attack, or an honest one."""
        check_choice("attack", kind, (HONEST, *KINDS))
        plan = self.plan
        signed = sign_plan(plan, SIMULATION_KEY)
        with tempfile.TemporaryDirectory() as folder:
            owners = [self._owner(Path(folder), number, kind) for number in range(OWNERS)]

            def answers(query: bytes) -> list[Sent]:
                return [
                    Sent(bytes([number]), owner.answer(signed, query))
                    for number, owner in enumerate(owners)
                ]

            return run_campaign(plan, replayed(answers) if kind == REPLAY else answers)

    def coverage(self, threshold: float) -> float:
        """The share of all records that a threshold covers, which the campaign's are drawn from."""
        people = self.population
        own = find_score(self.plan.score).true_scores(people.results, people.truth, u=None)
        return float(np.mean(own <= threshold)) if threshold < 1 else 1.0

    def _owner(self, folder: Path, number: int, kind: str) -> Respondent:
        rows = np.random.default_rng(self.seed).permutation(len(self.population))[: self.n]
        mine, liar = np.array_split(rows, OWNERS)[number], number == OWNERS - 1
        own = len(mine)
        if liar and kind == INVENTED:
            mine = np.resize(mine, round(self.times * len(mine)))
        probs = self.population.results[mine].astype(np.float32)
        labels = self.population.truth[mine]
        if liar and kind in (INVENTED, POISONED):
            honest = own if kind == INVENTED else 0
            labels = np.concatenate([labels[:honest], probs[honest:].argmax(axis=1)])
        names = tuple(f"{number}/{place}".encode() for place in range(len(mine)))
        issued = self.plan.issued
        return Respondent(
            records=Records(names, probs, labels, EMBEDDED_MODEL),
            policy=lambda: SIMULATION_POLICY,
            ledger=Ledger(folder / f"{number}.sqlite"),
            secret=bytes([number]) * 32,
            entropy=SeededEntropy("wire", self.seed, number),
            now=lambda: issued,
        )


def replayed(answers: Callable[[bytes], Iterable[Sent]]) -> Callable[[bytes], list[Sent]]:
    """Answers that arrive again and again: from their owner, from another, and too late."""
    before: list[Sent] = []

    def asked(query: bytes) -> list[Sent]:
        now = list(answers(query))
        others = [Sent(bytes([99]), sent.answer) for sent in now]
        again = [*before, *now, *now, *others, *now]
        before.extend(now)
        return again

    return asked
