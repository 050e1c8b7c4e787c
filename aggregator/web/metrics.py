"""Gauges for Prometheus.

Those of the campaigns are the same from every process on one database; those of the process are its
own.
"""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage import views
from confide.aggregator.storage.store import Store
from confide.aggregator.web.search_progress import alarm, asked_of, departure

_FAMILIES: tuple[tuple[Any, str, str], ...] = (
    (GaugeMetricFamily, "confide_reports_expected", "Reports expected in all"),
    (CounterMetricFamily, "confide_reports", "Reports stored"),
    (GaugeMetricFamily, "confide_rounds", "Rounds opened"),
    (GaugeMetricFamily, "confide_round_deadline_seconds", "When the open round is due, since 1970"),
    (GaugeMetricFamily, "confide_owners_finished", "Owners that have finished the last round"),
    (GaugeMetricFamily, "confide_owners_contributed", "Owners counted in the last round"),
    (GaugeMetricFamily, "confide_owners_minimum", "Contributors that the plan asks for"),
    (
        GaugeMetricFamily,
        "confide_owners_left",
        "Share of the first round's reports whose owners are missing from the last one counted",
    ),
    (GaugeMetricFamily, "confide_alarm", "1 if a monitor has found that coverage fell"),
    (GaugeMetricFamily, "confide_alarm_evidence", "Its log-evidence; an alarm from that needed on"),
    (GaugeMetricFamily, "confide_alarm_evidence_needed", "The log-evidence that is an alarm"),
)


class Campaigns(Collector):
    """Gauges of all campaigns, read from the store at each request."""

    def __init__(self, store: Store) -> None:
        self._store, self._engine = store, store.engine

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "confide_campaign",
            "1, with what the campaign is",
            labels=["campaign", "method", "state"],
        )
        families = [family(name, text, labels=["campaign"]) for family, name, text in _FAMILIES]
        rejected = CounterMetricFamily(
            "confide_rejections", "Refused, by code", labels=["campaign", "code"]
        )
        for code, times in views.rejected(self._engine, "").items():
            rejected.add_metric(["", code], times)
        for one in views.overviews(self._engine)[0]:
            state.add_metric([one.id, f"{one.plan.method}:{one.plan.variant}", one.state], 1)
            for family, value in zip(families, self._values(one), strict=True):
                if value is not None:
                    family.add_metric([one.id], value)
            for code, times in views.rejected(self._engine, one.id).items():
                rejected.add_metric([one.id, code], times)
        yield from (state, *families, rejected)

    def _values(self, one: views.Overview) -> tuple[float | None, ...]:
        """The value of each of _FAMILIES; None where the campaign has none."""
        asked = views.rounds(self._engine, one)
        last, counted = asked[-1] if asked else None, asked_of(self._store, one.id)
        watched, left = alarm(*counted), departure(self._store, one)
        return (
            one.plan.expected_records,
            sum(row.reports for row in asked),
            len(asked),
            None if last is None or last.closed is not None else last.deadline,
            None if last is None else last.finished,
            None if last is None else last.contributed,
            one.plan.minimum_owners,
            None if left is None else left.share,
            None if watched is None else watched.raised,
            None if watched is None else watched.log_evidence,
            None if watched is None else watched.needed,
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
