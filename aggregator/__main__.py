"""`confide-aggregator`, also as `python -m confide.aggregator`, and `confide-card`."""

from confide.protocol.commands.terminal import run_command


def main() -> None:
    run_command("confide.aggregator.cli.server", name="confide-aggregator", extra="server")


def card() -> None:
    run_command("confide.aggregator.cli.card", name="confide-card", extra="server")


if __name__ == "__main__":
    main()
