"""Tutorial: a federation on a file of your own, and predictions with the card that comes of it.

The file has one row a record: its hospital, its label, and what the model says of it. Every
hospital is a node of Flower that answers for its own rows. New records may come in a file of the
same columns.
"""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

from confide.protocol.simulated.embedded import predictions
from confide.protocol.simulated.settings import SIMULATION_PUBLIC

HOSPITALS = {"north": 4000, "east": 2500, "south": 1500, "west": 500}


def write(path: str, rows: slice) -> None:
    """Write records as csv, with the column of hospitals."""
    probs, labels = (part[rows] for part in predictions())
    names = np.resize(np.repeat(list(HOSPITALS), list(HOSPITALS.values())), len(labels))
    with Path(path).open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["hospital", "id", "label", *(f"p{k}" for k in range(26))])
        for i, (row, label) in enumerate(zip(probs.tolist(), labels.tolist(), strict=True)):
            out.writerow([names[i], i, label, *row])


def run(*words: str) -> None:
    print("$ confide", *words, flush=True)
    subprocess.run([sys.executable, "-m", "confide", *words], check=True)


def main() -> None:
    records = sum(HOSPITALS.values())
    write("clinics.csv", slice(0, records))
    write("new.csv", slice(records, records + 500))
    asked = ("--campaigns", "central:trusted", "--epsilon", "1", "--seed", "1", "--out", "out")
    run("federation", "--data", "clinics.csv", "--owner-column", "hospital", *asked)
    card = ("--card", "out/central-trusted.card.json", "--key", SIMULATION_PUBLIC.hex())
    run("predict", *card, "--data", "new.csv", "--out", "sets.csv", "--simulation")
    print(Path("sets.csv").read_text().splitlines()[:3])


if __name__ == "__main__":
    main()
