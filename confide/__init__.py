"""Conformal prediction calibrated on data that nobody has to share."""

from pathlib import Path

# A Flower bundle carries no symbolic links: there the packages lie beside this one.
if not Path(__file__).with_name("protocol").exists():
    __path__.append(str(Path(__file__).parent.parent))
