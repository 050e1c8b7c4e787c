"""`confide predict` on the files of a folder, and what it wrote."""

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from confide.__main__ import main as confide_main
from tests.support.cards.cards import KEY
from tests.support.programs.commands import run_main

PUBLIC = KEY.public_key().public_bytes_raw().hex()


def predict(folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command on files of a folder; an option that is None is left out."""
    given = {"card": "card.json", "key": PUBLIC, "data": "new.npz", "out": "out.csv"} | options
    words: list[str | Path] = []
    for name, value in given.items():
        if value is not None and value is not False:
            plain = name in ("key", "explain", "group-column", "coverage") or value is True
            at = value if plain else folder / value
            words += [f"--{name}"] if value is True else [f"--{name}", str(at)]
    return run_main(confide_main, "predict", *words)


def read(path: Path) -> tuple[list[Any], list[list[int]]]:
    """The ids and labels of a written file."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            ids = archive["ids"].tolist() if "ids" in archive else []
            return ids, [np.flatnonzero(row).tolist() for row in archive["sets"]]
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path).to_pydict()
        assert table["size"] == [len(labels) for labels in table["labels"]]
        return table["id"], table["labels"]
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line["id"] for line in lines], [line["labels"] for line in lines]
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["id"] for row in rows], [list(map(int, row["labels"].split())) for row in rows]


def read_wards(folder: Path) -> tuple[Any, list[str]]:
    with (folder / "wards.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    probs = np.array([[float(row[f"p{k}"]) for k in range(26)] for row in rows])
    return probs.astype(np.float32), [row["ward"] for row in rows]
