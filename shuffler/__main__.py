"""`confide-shuffler`, also as `python -m confide.shuffler`."""

from confide.protocol.commands.terminal import run_command


def main() -> None:
    run_command("confide.shuffler.cli", name="confide-shuffler", extra="server,client")


if __name__ == "__main__":
    main()
