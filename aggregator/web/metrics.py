"""Gauges for Prometheus.

Those of the campaigns are the same from every process on one database; those of the process are its
own.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage import views
from confide.aggregator.storage.store import Store


class Campaigns(Collector):
    """Gauges of all campaigns, read from the store at each request."""

    def __init__(self, store: Store) -> None:
        self._engine = store.engine

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "confide_campaign",
            "1, with what the campaign is",
            labels=["campaign", "method", "state"],
        )
        named = ["campaign"]
        expected = GaugeMetricFamily(
            "confide_reports_expected", "Reports expected in all", labels=named
        )
        reports = CounterMetricFamily("confide_reports", "Reports stored", labels=named)
        rounds = GaugeMetricFamily("confide_rounds", "Rounds opened", labels=named)
        deadline = GaugeMetricFamily(
            "confide_round_deadline_seconds", "When the open round is due, since 1970", labels=named
        )
        finished = GaugeMetricFamily(
            "confide_owners_finished", "Owners that have finished the last round", labels=named
        )
        contributed = GaugeMetricFamily(
            "confide_owners_contributed", "Owners counted in the last round", labels=named
        )
        minimum = GaugeMetricFamily(
            "confide_owners_minimum", "Contributors that the plan asks for", labels=named
        )
        rejected = CounterMetricFamily(
            "confide_rejections", "Refused, by code", labels=["campaign", "code"]
        )
        for code, times in views.rejected(self._engine, "").items():
            rejected.add_metric(["", code], times)
        for one in views.overviews(self._engine)[0]:
            asked = views.rounds(self._engine, one)
            state.add_metric([one.id, f"{one.plan.method}:{one.plan.variant}", one.state], 1)
            expected.add_metric([one.id], one.plan.expected_records)
            reports.add_metric([one.id], sum(row.reports for row in asked))
            rounds.add_metric([one.id], len(asked))
            minimum.add_metric([one.id], one.plan.minimum_owners)
            if asked:
                finished.add_metric([one.id], asked[-1].finished)
                contributed.add_metric([one.id], asked[-1].contributed)
            if asked and asked[-1].closed is None:
                deadline.add_metric([one.id], asked[-1].deadline)
            for code, times in views.rejected(self._engine, one.id).items():
                rejected.add_metric([one.id, code], times)
        yield from (
            state,
            expected,
            reports,
            rounds,
            deadline,
            finished,
            contributed,
            minimum,
            rejected,
        )


class Process(Collector):
    """Gauges of this process."""

    def __init__(self, status: ProcessStatus, now: Callable[[], float]) -> None:
        self._status, self._now = status, now

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield GaugeMetricFamily(
            "confide_healthy",
            "Whether the database can be read and written",
            value=status.healthy(self._now()),
        )
        yield CounterMetricFamily(
            "confide_transactions", "Transactions of reports committed", value=status.transactions
        )
        yield CounterMetricFamily(
            "confide_transaction_seconds", "Time spent in them", value=status.seconds
        )
        yield CounterMetricFamily(
            "confide_transaction_failures",
            "Transactions of reports that failed",
            value=status.failures,
        )
        yield GaugeMetricFamily(
            "confide_campaigns_stuck", "Campaigns that could not be advanced", value=status.stuck
        )
        yield GaugeMetricFamily(
            "confide_open_calls", "Calls of owners that are open", value=status.open_calls
        )


def metrics(store: Store, status: ProcessStatus, now: Callable[[], float]) -> Callable[[], bytes]:
    """What `/metrics` answers."""
    registry = CollectorRegistry()
    for collector in (Campaigns(store), Process(status, now)):
        registry.register(collector)
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)
