"""The settings of campaigns on this machine, as they stand without any option."""

import tomllib
from pathlib import Path
from typing import Any

# The project's own pyproject.toml, which is what Flower reads an app's components and configuration
# from.
APP = Path(__file__).with_name("flower.toml")


def run_defaults() -> dict[str, Any]:
    """The run configuration of the app, as it stands without any override."""
    app: dict[str, Any] = tomllib.loads(APP.read_text())["tool"]["flwr"]["app"]
    return dict(app["config"])
