"""A federation on a file of one's own: twelve hospitals of unequal size, and what each gets of it.

Writes the embedded letters as a csv file with features, labels and a column of hospitals, and the
embedded model beside it; then runs `confide federation` on them and shows its table by owner.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from confide.protocol.simulated.embedded import embedded_model, owned

# The records of each hospital.
SIZES = (60, 90, 120, 180, 240, 300, 450, 600, 750, 900, 1_200, 2_610)
CAMPAIGNS = "labels:certified bits:certified central:owner-noised"


def write_hospitals(path: Path) -> None:
    """Write features, labels and the hospital of every record, in no order."""
    features, labels = owned()
    names = [f"hospital {chr(ord('A') + place)}" for place in range(len(SIZES))]
    whose = np.repeat(names, SIZES)[np.random.default_rng(1).permutation(sum(SIZES))]
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["hospital", "label", *(f"x{i}" for i in range(features.shape[1]))])
        for name, label, row in zip(whose, labels, features.tolist(), strict=False):
            out.writerow([name, label, *row])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", default=CAMPAIGNS, help=f"default: {CAMPAIGNS}")
    parser.add_argument("--epsilon", default="2", help="default: 2")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_hospitals(folder / "mine.csv")
        (folder / "model.onnx").write_bytes(embedded_model())
        words = "federation --data mine.csv --owner-column hospital --model model.onnx --campaigns"
        command = [*words.split(), given.campaigns, "--epsilon", given.epsilon, "--seed", "1"]
        shown = " ".join(f"'{word}'" if " " in word else word for word in command)
        print(f"$ confide {shown}", flush=True)
        subprocess.run([sys.executable, "-m", "confide", *command], cwd=folder, check=True)


if __name__ == "__main__":
    main()
