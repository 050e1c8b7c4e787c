"""The queueing model: against closed forms, and what happens to phones that find nobody."""

from dataclasses import replace

import numpy as np
import pytest

from confide.simulation.scale.arrivals import DAY, WEEK, AtOnce, Daily
from confide.simulation.scale.capacity import held
from confide.simulation.scale.costs import Costs
from confide.simulation.scale.queueing import Region, simulate

VISIT = 0.01
# A commit that takes no time leaves a plain queue.
PLAIN = Costs(
    visit=VISIT,
    refused=0.0,
    transaction=0.0,
    batch=0.0,
    foreign=0.0,
    tally=0.0,
    wire=0.0,
    disk=0.0,
    enrolled=0.0,
    memory=0.0,
)
ENDLESS = 10**9


def even(rate: float) -> Daily:
    """So many phones a second, at any time of the day."""
    return Daily(phones=rate * WEEK, swing=0.0)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("load", [0.5, 0.8])
@pytest.mark.parametrize("exponential", [False, True])
def test_waits_are_those_of_the_closed_form(
    processes: int, load: float, *, exponential: bool
) -> None:
    """M/D/1 and M/M/1 (Pollaczek and Khinchine), for each process its share of the phones.

    The two differ by more than a quarter at these loads, and the tolerance is 5 %.
    """
    region = Region(
        processes=processes,
        costs=PLAIN,
        places=ENDLESS,
        connections=ENDLESS,
        exponential=exponential,
    )
    found = simulate(even(processes * load / VISIT), region, window=(0.0, 500.0), seed=1, tail=60)
    queue = VISIT * load / (1 - load) * (1.0 if exponential else 0.5)
    assert found.waits.mean() == pytest.approx(VISIT + queue, rel=0.05)
    assert found.working / (500.0 * processes) == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize("processes", [1, 4])
def test_a_round_is_held_for_own_answers_and_for_those_of_others(processes: int) -> None:
    """Each answer is stored once and read again by every other process, as plans count."""
    costs = replace(PLAIN, visit=1e-6, batch=0.01, foreign=0.002)
    region = Region(processes=processes, costs=costs, places=ENDLESS, connections=ENDLESS)
    found = simulate(even(50.0), region, window=(0.0, 400.0), seed=2, tail=10.0)
    planned = held(costs, visits=50.0, processes=processes)
    assert found.committing / 400 == pytest.approx(planned, rel=0.03)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_processes_that_start_again_read_all_answers(processes: int, *, fails: bool) -> None:
    """A million stored answers at 0.05 ms: after a failure each process reads them once, one after
    the other, so the round is held for 50 seconds longer for each, and the last of those that wait
    waits for all of them. Without a failure nobody reads them."""
    stored, foreign, batch, rate, window = 1_000_000, 5e-5, 0.001, 20.0, 400.0
    costs = replace(PLAIN, visit=1e-6, batch=batch, foreign=foreign)
    region = Region(
        processes=processes,
        costs=costs,
        places=ENDLESS,
        connections=ENDLESS,
        stored=stored,
        down=(10.0, 10.001) if fails else (0.0, 0.0),
    )
    found = simulate(even(rate), region, window=(0.0, window), seed=8, tail=200.0)
    reading = processes * foreign * stored * fails
    planned = held(costs, visits=rate, processes=processes) * window + reading
    assert found.committing == pytest.approx(planned, rel=0.05)
    assert len(found.done) == found.phones
    assert found.waits.max() == pytest.approx(reading, rel=0.02, abs=0.1)


def test_an_overloaded_queue_is_said_to_grow() -> None:
    """At 0.9 of what a process takes no queue grows, at 1.1 it does; both stop with the window."""
    region = Region(processes=1, costs=PLAIN, places=ENDLESS, connections=ENDLESS)
    for load in (0.9, 1.1):
        found = simulate(even(load / VISIT), region, window=(0.0, 500.0), seed=9)
        assert found.grow == (load > 1)
        assert found.working / 500 == pytest.approx(min(load, 1), rel=0.02)


def test_waiting_answers_share_a_transaction() -> None:
    """At ten times the rate of transactions all answers are taken, about ten to each."""
    costs = replace(PLAIN, visit=1e-6, transaction=0.1)
    region = Region(processes=1, costs=costs, places=ENDLESS, connections=ENDLESS)
    found = simulate(even(100.0), region, window=(0.0, 200.0), seed=3, tail=1.0)
    assert len(found.done) / found.transactions == pytest.approx(10, rel=0.05)
    assert found.waits.max() <= 2 * 0.1 + 1e-3


def test_phones_come_back_after_a_failure_and_none_is_lost() -> None:
    """Every phone that came is done once; those of the failure are spread over the pauses."""
    region = Region(processes=2, costs=PLAIN, down=(100.0, 160.0))
    found = simulate(even(80.0), region, window=(0.0, 200.0), seed=4, tail=300.0)
    came = np.array(found.came)
    assert len(came) == len(set(found.came)) == pytest.approx(80 * 200, rel=0.03)
    during = (came > 100.0) & (came < 160.0)
    assert (np.array(found.done)[during] >= 160.0).all()
    assert (np.array(found.tries)[during] > 1).all()
    assert np.array(found.tries)[came < 99.0].max() == 1
    # Pauses are at most 30 seconds, so all are back soon.
    assert max(found.done) < 160.0 + 30.0 + 60.0


def test_phones_out_of_patience_wait_for_their_timer() -> None:
    """With a patience of 20 seconds, those of the first 30 have given up when it is over."""
    region = Region(processes=2, costs=PLAIN, down=(0.0, 90.0), patience=20.0)
    window = (0.0, 30.0)
    gone = simulate(even(50.0), region, window=window, seed=5, tail=600.0)
    assert not gone.done
    again = simulate(even(50.0), replace(region, timer=300.0), window=window, seed=5, tail=900.0)
    assert len(again.done) == gone.lost_patience


def test_refused_phones_come_again_at_random() -> None:
    """A timer that all share fills the places; pauses without jitter bring them back together."""
    costs = replace(PLAIN, refused=0.001)
    herd = AtOnce(phones=2_000, moment=1.0, spread=0.1)
    found = {}
    for jitter in (True, False):
        region = Region(processes=1, costs=costs, places=50, connections=100, jitter=jitter)
        found[jitter] = simulate(herd, region, window=(0.0, 10.0), seed=6, tail=600.0)
    assert len(found[True].done) == 2_000
    assert found[True].refused > 0
    assert found[True].dropped < found[False].dropped
    assert max(found[True].done) < max(found[False].done)


def test_phones_follow_the_day() -> None:
    """A week has as many as planned, the busiest hour 1.8 times its share."""
    fleet = Daily(phones=200_000, swing=0.8, busiest=DAY / 2)
    moments = fleet.draw(0.0, WEEK, rng=np.random.default_rng(7))
    assert len(moments) == pytest.approx(200_000, rel=0.01)
    noon = np.abs(moments % DAY - DAY / 2) < 1_800
    assert noon.mean() == pytest.approx(1.8 / 24, rel=0.05)
