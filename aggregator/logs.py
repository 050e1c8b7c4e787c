"""Logs as one JSON object a line: what happened to which campaign, never what anybody reported."""

import json
import logging
import sys
from datetime import UTC, datetime

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """The event, its level, its moment, and the fields given with it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in _USUAL}
        line = {"at": datetime.fromtimestamp(record.created, UTC).isoformat(), "level": record.levelname.lower()}
        line |= {"event": record.getMessage(), **fields}
        if record.exc_info is not None:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr() -> None:
    """Send the aggregator's logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("aggregator")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
