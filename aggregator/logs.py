"""Logs as one JSON object a line: events of campaigns, never values that owners reported."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

_ROOT = Path(__file__).parent
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """The event, its level, its moment, and the fields given with it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in _USUAL}
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
        }
        line |= {"event": record.getMessage(), **fields}
        return json.dumps(line)


def place_of(error: BaseException) -> str:
    """The type of an error and where in this project it occurred, without its message.

    The message might contain reported values.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_ROOT)] or frames
    return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"


def log_to_stderr(*names: str) -> None:
    """Send the logs of these packages, and the server's own, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("confide.aggregator", *names):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
