"""The tables of docs/local-methods.md as Markdown: for `local_methods.py` and `coverage.py`."""

from benchmarks.markdown import Row, grouped, table


def label_markdown(rows: list[Row]) -> str:
    """A line for each n and epsilon: mean set sizes of the published and the certified variants."""
    lines = []
    for (n, epsilon), (published, *certified) in grouped(rows, "n", "epsilon").items():
        trivial = f"{published['trivial']:.0%}, {max(row['trivial'] for row in certified):.0%}"
        below = ", ".join(f"{row['below_target']:.2f}" for row in certified)
        lines.append(
            [f"{n:,}", f"{epsilon:g}"]
            + [f"{row['mean_size']:.2f}" for row in (published, *certified)]
            + [trivial, below]
        )
    headings = ["n", "epsilon", "published L*", "certified, k-RR", "certified, subset"]
    headings += ["auto, provider's ladder", "trivial: L*, certified", "certified: below target"]
    return table(headings, lines, words=-1)


def bit_markdown(rows: list[Row]) -> str:
    """A line for each population: excess over the target, and shares of what S* exceeds it by."""
    lines = []
    for cell, own in grouped(rows, "epsilon", "n", "population").items():
        published, certified, one_shot = own
        lines.append(
            [f"{cell[0]:g}", f"{cell[1]:,}", cell[2]]
            + [f"{published['excess']:.3f}", f"{certified['excess']:.3f}"]
            + [f"{row['of_published']:.2f}" for row in (certified, one_shot)]
            + [", ".join(f"{row['trivial']:.0%}" for row in own)]
        )
    headings = ["epsilon", "n", "scores", "published S*: excess", "certified: excess"]
    headings += ["share of S*", "one-shot: share of S*", "trivial: S*, certified, one-shot"]
    below = max(row["below_target"] for row in rows if row["variant"] != "published S*")
    return (
        table(headings, lines, words=2)
        + "\n\nShare of certified and one-shot campaigns below the target: at most "
        + f"{below:.2f} in any cell."
    )


def failure_rate(rows: list[Row]) -> str:
    """The share of campaigns that failed, of all these cells."""
    failures, campaigns = (sum(row[name] for row in rows) for name in ("failures", "campaigns"))
    return f"{failures / campaigns:.3f}"


def failure_markdown(rows: list[Row]) -> str:
    """A line for each method that failed at all; the others are counted below the table."""
    lines, never = [], 0
    names = [name for (name,) in grouped(rows, "population")]
    paths = [path for (path,) in grouped(rows, "path")]
    for (method,), own in grouped(rows, "method").items():
        worst = max(own, key=lambda row: row["failures"])
        if worst["failures"] == 0:
            never += sum(row["campaigns"] for row in own)
            continue
        places = grouped(own, "population", "path")
        lines.append(
            [method]
            + [", ".join(failure_rate(places[name, path]) for path in paths) for name in names]
            + [f"{worst['failures']} of {worst['campaigns']} ({worst['score']}, {worst['path']})"]
            + [f"{worst['low']:.3f} to {worst['high']:.3f}"]
        )
    populations = [f"{name}: {', '.join(paths)}" for name in names]
    return (
        table(["method", *populations, "worst cell", "its limits"], lines)
        + f"\n\nOf {never:,} campaigns of the other methods none failed."
    )


def hard_markdown(rows: list[Row]) -> str:
    """A line for each variant: failures by population and path, and the cell that failed most."""
    names = [name for (name,) in grouped(rows, "population")]
    lines = []
    for (method,), own in grouped(rows, "method").items():
        worst, places = max(own, key=lambda row: row["low"]), grouped(own, "population")
        lines.append(
            [method]
            + [
                ", ".join(f"{row['failures']} ({row['trivial']:.0%})" for row in places[(name,)])
                for name in names
            ]
            + [f"{worst['failures']} of {worst['campaigns']}", f"{worst['low']:.3f}"]
        )
    return table(["variant", *names, "most often", "worst lower limit"], lines)
