"""Liars in the in-process driver and through the real client, and what certificates withstand."""

from functools import cache

import numpy as np
import pytest
from typer.testing import CliRunner

from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.exact.sampling import SeededEntropy
from confide.simulation.advice.curves import SizeCurve, curve_of
from confide.simulation.attackers.lies import KINDS, LYING, ScoredRecords, liars
from confide.simulation.attackers.poisoning import Attack, Attacked, compared
from confide.simulation.attackers.wire import HONEST, INVENTED, POISONED, REPLAY, Wired
from confide.simulation.cli import app
from confide.simulation.data.population import Predictions
from confide.simulation.data.synthetic import softmax_records

N = 2_000


@cache
def population() -> Predictions:
    return Predictions("five", *softmax_records(8_000, np.random.default_rng(5), labels=5))


def curve() -> SizeCurve:
    return curve_of(population(), "hps")


@pytest.mark.parametrize(
    ("method", "n", "share"), [("bits", 20_000, 0.015), ("labels", 8_000, 0.03)]
)
def test_a_colluding_share_breaks_a_certificate_that_does_not_allow_for_it(
    method: str, n: int, share: float
) -> None:
    """With `max_corrupt` at the share every campaign covers what it certified; without it, few do.

    `benchmarks/laboratory/attacks.py` runs 200.
    """
    setting = Attacked(method=method, epsilon=4.0, n=n)
    honest, bare, allowed = compared(Attack("colluding", share, setting, campaigns=6), curve())
    assert honest.below <= 3
    assert bare.below >= 5
    assert allowed.kept
    assert allowed.max_corrupt == round(share * n)
    assert bare.coverage < honest.coverage < allowed.coverage


@pytest.mark.parametrize("kind", KINDS)
def test_liars_say_what_their_kind_says_and_others_do_not(kind: str) -> None:
    """Reports of bits and labels differ from those of the same users without liars only at the
    liars, of whom there are as many as asked for."""
    records = ScoredRecords(curve().every[:N], curve().labels[:N])
    lying = liars(kind, records, 100)
    assert lying.sum() == 100
    channel, everyone = Bit(epsilon=2.0), slice(0, N)
    bits = records.own <= 0.5
    reports = [
        LYING["bits"](kind, records, count, entropy=SeededEntropy("bits")).reports(
            bits, channel, everyone
        )
        for count in (0, 100)
    ]
    assert not (reports[0] != reports[1])[~lying].any()
    if kind == "flipped":
        assert (reports[0] != reports[1])[lying].all()
    else:
        assert reports[1][lying].all()
    users = LYING["labels"](kind, records, 100, entropy=SeededEntropy("labels"))
    for name in LABEL_CHANNELS:
        over = LABEL_CHANNELS[name](k=5, epsilon=2.0)
        held = over.supports(users.reports(over, everyone))[np.arange(N), users.claims]
        assert held[lying].all(), name
        assert not held[~lying].all(), name


def test_replayed_answers_change_nothing() -> None:
    """Answers that arrive again, from another owner, or late: the same reports count, in the same
    certificate, and each copy has its code."""
    wired = Wired(population(), n=1_000, method="bits:certified")
    honest, attacked = wired.run(HONEST), wired.run(REPLAY)
    assert attacked.certificate == honest.certificate
    assert attacked.received["OK"] == honest.received["OK"]
    assert attacked.received["DUPLICATE"] == 3 * honest.received["OK"]
    assert attacked.received["LATE"] > 0
    assert attacked.largest == honest.largest


def test_invented_records_are_counted_no_further_than_the_allowance() -> None:
    """Eight times its records over the wire: what is beyond the owner's share is SURPLUS; what is
    within it counts. Poisoned labels pass, and lower the threshold."""
    invented = Wired(population(), n=4_000).run(INVENTED)
    assert invented.received == {"OK": 3, "SURPLUS": 1}
    assert invented.certificate.n == 3_000
    wired = Wired(population(), n=8_000, method="bits:certified")
    honest, poisoned = (wired.run(kind) for kind in (HONEST, POISONED))
    assert poisoned.received == honest.received
    assert poisoned.certificate.threshold < honest.certificate.threshold


def test_the_command_shows_lies_and_the_wire() -> None:
    """Tables with and without the attack; a kind that does not exist is refused."""
    given = ["--n", "2000", "--campaigns", "2"]
    run = CliRunner().invoke(app, ["attack", "lies", "flipped", *given])
    assert run.exit_code == 0, run.output
    assert "20 of 2,000 records lie" in run.output
    run = CliRunner().invoke(app, ["attack", "wire", "replay", "--n", "400"])
    assert run.exit_code == 0, run.output
    assert "DUPLICATE" in run.output
    for words, says in (
        (["lies", "nonsense"], "attack is"),
        (["lies", "--share", "2"], "share is 2"),
        (["lies", "--method", "central"], "method is"),
        (["wire", "nonsense"], "attack is"),
        (["wire", "--method", "central"], "method is 'central'; accepted: bits, labels"),
        (["wire", "--n", "1"], "n is 1"),
    ):
        refused = CliRunner().invoke(app, ["attack", *words])
        assert refused.exit_code == 2, words
        assert says in " ".join(refused.output.split()), refused.output
