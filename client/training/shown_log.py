"""Shows the owner what trainings log: what computes their gradients, and on which device."""

import logging
import sys


class _Lines(logging.Handler):
    """Writes messages as lines to the standard error of the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


def show_training() -> None:
    """Show what trainings log on standard error; nothing of it depends on records."""
    logger = logging.getLogger("confide.client.training")
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _Lines) for handler in logger.handlers):
        logger.addHandler(_Lines())
