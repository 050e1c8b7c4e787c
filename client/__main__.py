"""`confide-client`, also as `python -m client`."""

from protocol.terminal import run_command


def main() -> None:
    run_command("client.cli", name="confide-client", extra="client")


if __name__ == "__main__":
    main()
