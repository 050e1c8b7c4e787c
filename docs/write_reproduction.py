"""Writes docs/reproduction.md from the results in benchmarks/reproduction/.

`python docs/write_reproduction.py [FILE]`; a test fails when the page is not what this script
writes. The results are those of `confide reproduce NAME --out benchmarks/reproduction`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from confide.simulation.reproduce.all_targets import TARGETS  # noqa: E402
from confide.simulation.reproduce.results import cell, headings, shown  # noqa: E402
from confide.simulation.reproduce.target import Target  # noqa: E402

RESULTS = HERE.parent / "benchmarks" / "reproduction"
# Rows of a curve that the page shows.
MOST = 24
HEAD = """# The papers' figures and tables, computed again

`confide reproduce NAME` computes one of them and shows it beside the paper's numbers; `confide
reproduce --list` names all, with what they need and how long they take, and `confide reproduce
quick` runs all that need no data and train no network, in less than two minutes. Each writes its
rows (csv, json) and a picture (png) into `--out`. What trains keeps every finished trial there: the
same command continues after Ctrl-C or a kill.

Data sets are never downloaded. Those that need one read it from `--data FOLDER`; where that is not
here, a stand-in is named, on the embedded letters or made-up records, which shows the behaviour and
not the paper's numbers.

Papers: LDP (Penso et al. 2025), CARD (contract cards), PPS (Angelopoulos et al. 2022), DPCP (Wu et
al. 2026), SCP (stabilised conformal prediction). Many of their figures have curves without numbers;
then their sentences are what can be compared.

Written by `python docs/write_reproduction.py` from `benchmarks/reproduction/`, each file of which
has its command. Seconds are of processor time, with one thread; of what trains, the time that the
default number of trials takes.

## Summary

| name | of | our rows agree with the paper's sentences | command | seconds |
|---|---|---|---|---|
"""


def main(target: Path) -> None:
    results = {}
    for path in sorted(RESULTS.glob("*.json")):
        if not path.name.endswith(".trials.json"):
            result = json.loads(path.read_text())
            results[result["name"]] = result
    text = HEAD
    for name, made in TARGETS.items():
        result = results.get(name)
        if result is None:
            needs = ", ".join(f"`{one.name}`" for one in made.needs) or "training"
            text += f"| `{name}` | {made.of} | no result is committed: needs {needs} | | |\n"
            continue
        kind = " (stand-in)" if result["stand_in"] else ""
        agrees = ", ".join(answer["agrees"] for answer in result["answers"]) or "-"
        text += f"| [`{name}`](#{name}) | {result['of']}{kind} | {agrees} "
        text += f"| `{result['command']}` | {took(made, result)} |\n"
    for name in TARGETS:
        if name in results:
            text += "\n" + "\n".join(section(results[name])) + "\n"
    target.write_text(text)


def took(target: Target, result: dict[str, Any]) -> str:
    """Measured seconds; trials that were kept cost none in the last run."""
    return target.takes if target.trained else f"{result['processor_seconds']:g}"


def section(result: dict[str, Any]) -> Iterator[str]:
    """A heading, the answers to the paper's sentences, the differences, and the rows."""
    kind = "Stand-in for " if result["stand_in"] else ""
    trained = TARGETS[result["name"]].trained
    trials = "; one trial, so differences of a few thousandths in coverage are chance"
    trials = f"; {result['trials']} trials" if result["trials"] > 1 else trials if trained else ""
    yield f"## {result['name']}\n"
    yield f"{kind}{result['of']}: {result['shows']}{trials}. `{result['command']}`\n"
    for answer in result["answers"]:
        yield f"- *{answer['where']}*: {answer['says']}. **{answer['agrees']}**: {answer['ours']}."
    yield "\nWhat differs, and why:\n"
    for sentence in result["differences"]:
        yield f"- {sentence}"
    few = shown(result["rows"], MOST)
    names = headings(few)
    printed = result["numbers_of_the_paper"]
    if printed:
        yield f"\nColumns `paper ...`: {printed}."
    yield "\n| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|"
    for row in few:
        yield "| " + " | ".join(cell(row.get(name)) for name in names) + " |"
    if len(few) < len(result["rows"]):
        yield f"\n{len(few)} of {len(result['rows'])} rows."


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "reproduction.md")
