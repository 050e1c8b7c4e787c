"""`confide-aggregator`, also as `python -m aggregator`, and `confide-card`."""

from protocol.terminal import run_command


def main() -> None:
    run_command("aggregator.cli", name="confide-aggregator", extra="server")


def card() -> None:
    run_command("aggregator.card_cli", name="confide-card", extra="server")


if __name__ == "__main__":
    main()
