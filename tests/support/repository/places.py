"""Where the project is on this machine."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
