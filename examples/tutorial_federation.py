"""Tutorial: a federation on a file of your own, and predictions with the card that comes of it.

The file has one row a record: its hospital, its label, and what the model says of it. Every
hospital is a node of Flower that answers for its own rows.
"""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

from confide.protocol.simulated.embedded import predictions
from confide.protocol.simulated.settings import SIMULATION_PUBLIC

HOSPITALS = {"north": 4000, "east": 2500, "south": 1500, "west": 500}


def write(path: str, rows: slice, *, hospitals: bool) -> None:
    """Write records as csv, with the column of hospitals or without it."""
    probs, labels = (part[rows] for part in predictions())
    names = np.repeat(list(HOSPITALS), list(HOSPITALS.values()))
    with Path(path).open("w", newline="") as file:
        out = csv.writer(file)
        head = ["id", "label", *(f"p{k}" for k in range(26))]
        out.writerow(["hospital", *head] if hospitals else head)
        for i, (row, label) in enumerate(zip(probs.tolist(), labels.tolist(), strict=True)):
            record = [i, label, *row]
            out.writerow([names[i], *record] if hospitals else record)


def run(*words: str) -> None:
    print("$ confide", *words, flush=True)
    subprocess.run([sys.executable, "-m", "confide", *words], check=True)


def main() -> None:
    records = sum(HOSPITALS.values())
    write("clinics.csv", slice(0, records), hospitals=True)
    write("new.csv", slice(records, records + 500), hospitals=False)
    asked = ("--campaigns", "central:trusted", "--epsilon", "1", "--seed", "1", "--out", "out")
    run("federation", "--data", "clinics.csv", "--owner-column", "hospital", *asked)
    card = ("--card", "out/central-trusted.card.json", "--key", SIMULATION_PUBLIC.hex())
    run("predict", *card, "--data", "new.csv", "--out", "sets.csv", "--simulation")
    print(Path("sets.csv").read_text().splitlines()[:3])


if __name__ == "__main__":
    main()
