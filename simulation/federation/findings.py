"""What the campaigns of a simulation found, and the conclusion from it in sentences."""

from dataclasses import dataclass
from typing import Any

from scipy.special import bdtr, betaincinv

from confide.protocol.certificate import BAND, MARGINAL, PAC

Row = dict[str, Any]

# Of the intervals around measured coverage.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Findings:
    """The results of a federation, one for each campaign, with calibration without privacy."""

    rows: list[Row]

    @property
    def calibrations(self) -> list[Row]:
        return [row for row in self.rows if "threshold" in row]

    @property
    def trainings(self) -> list[Row]:
        return [row for row in self.rows if "threshold" not in row]

    @property
    def private(self) -> list[Row]:
        return [row for row in self.calibrations if row["channel"] is not None]

    @property
    def plain(self) -> Row | None:
        """Calibration without privacy, if it was run."""
        return next((row for row in self.calibrations if row["channel"] is None), None)

    @property
    def simulation(self) -> bool:
        """Whether randomness was seeded, so that nothing is private."""
        return any("simulation" in row.get("randomness", "") for row in self.rows)

    @property
    def status(self) -> str:
        """The conclusion in a few words."""
        useful = [row for row in self.private if informative(row)]
        if not self.private:
            words = f"{len(self.trainings)} trained"
        else:
            words = f"{len(useful)} of {len(self.private)} campaigns give useful sets"
        return f"SIMULATION ONLY: {words}" if self.simulation else words

    def conclusion(self) -> list[str]:
        """Say which campaigns did best, whether promises were met, and what cannot be concluded."""
        said = [self._best(kind) for kind in (PAC, BAND, MARGINAL)]
        if self.private:
            said.append(self._kept())
        said += [
            f"{row['campaign']} reached {reached(row)} at epsilon {row['epsilon']:.3g} and delta "
            f"{row['delta']:g} a record."
            for row in self.trainings
            if {"accuracy", "rmse"} & set(row)
        ]
        if self.simulation:
            said.append(
                "Randomness was seeded, so that the run can be repeated: nothing in it is private."
            )
        return [line for line in said if line]

    def spread(self) -> list[str]:
        """Say of every campaign how far owners lie apart, and how many fall short beyond chance.

        The upper end of an owner's interval is below its true coverage once in 40 times.
        """
        said = []
        for row in self.calibrations:
            owners = [one for one in row["owners"] if one["test_records"]]
            if not owners:
                continue
            low, high = (
                best(owners, key=lambda one: float(one["coverage"])) for best in (min, max)
            )
            short = sum(
                interval(one["coverage"], one["test_records"])[1] < row["level"] for one in owners
            )
            said.append(
                f"{row['campaign']}: coverage from {low['coverage']:.3f} ({low['owner']}) to "
                f"{high['coverage']:.3f} ({high['owner']}); {short} of {len(owners)} owners below "
                f"{row['level']:.3g} by more than chance explains, but for 1 in 40."
            )
        return said

    def _best(self, kind: str) -> str:
        useful = [row for row in self.private if row["kind"] == kind and informative(row)]
        if not useful:
            return ""
        best = min(useful, key=lambda row: float(size(row) or 0))
        words = (
            "on average over calibrations"
            if kind == MARGINAL
            else f"except with probability {best['delta']:g} over calibration"
        )
        beside = ""
        if self.plain is not None and informative(self.plain):
            beside = f", {size(self.plain):.2f} without privacy"
        return (
            f"{best['campaign']} is the best with coverage {best['level']:.3g} promised {words}: "
            f"mean {unit(best)} {size(best):.2f}{beside}, epsilon {best['epsilon']:.3g} a record."
        )

    def _kept(self) -> str:
        """Compare measured coverage with what was promised."""
        n = tested(self.private[0])
        below = [row for row in self.private if falls_short(row)]
        if not below:
            return (
                f"On {n:,} test records no campaign covers less than it promised, within the error "
                "of so many records."
            )
        names = ", ".join(f"{row['campaign']} ({row['coverage']:.4f})" for row in below)
        average = (
            " A marginal promise is an average over calibrations, of which this is one."
            if any(row["kind"] == MARGINAL for row in below)
            else ""
        )
        return f"On {n:,} test records less than promised is covered by {names}.{average}"


def tested(row: Row) -> int:
    """Return the number of test records."""
    return sum(one["test_records"] for one in row["owners"])


def interval(coverage: float, n: int) -> tuple[float, float]:
    """Return the exact interval of the true coverage, given the share that was covered of n."""
    covered, tail = round(coverage * n), (1 - CONFIDENCE) / 2
    low = betaincinv(covered, n - covered + 1, tail) if covered else 0.0
    high = betaincinv(covered + 1, n - covered, 1 - tail) if covered < n else 1.0
    return float(low), float(high)


def falls_short(row: Row) -> bool:
    """Return whether so little was covered as happens once in 1,000 times if the promise holds."""
    n = tested(row)
    return bool(bdtr(round(row["coverage"] * n), n, row["level"]) < 1e-3)


def size(row: Row) -> float | None:
    """Return the mean size of sets, or the mean width of intervals; None if unbounded."""
    found = row["mean_width"] if "mean_width" in row else row["mean_size"]
    return None if found is None else float(found)


def unit(row: Row) -> str:
    """Name what `size` measures."""
    return "interval width" if "mean_width" in row else "set size"


def informative(row: Row) -> bool:
    """Return whether the threshold leaves anything out."""
    return row["threshold"] < 1 and size(row) is not None


def reached(row: Row) -> str:
    """Say how good a training is; the error of numbers is in the target's unit."""
    if "rmse" in row:
        return f"root mean square error {row['rmse']:.4g}"
    return f"accuracy {row['accuracy']:.3f}"
