"""`confide-client`, also as `python -m confide.client`."""

from confide.protocol.commands.terminal import run_command


def main() -> None:
    run_command("confide.client.cli.app", name="confide-client", extra="client")


if __name__ == "__main__":
    main()
