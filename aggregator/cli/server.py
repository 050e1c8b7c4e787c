"""`confide-aggregator`: for operators, who run campaigns."""

from confide.protocol.commands.command_line import CommandLine

ROOM = "confide.aggregator.cli"
OWNER_COMMANDS = {
    "add": f"{ROOM}.owners:owner_add",
    "remove": f"{ROOM}.owners:owner_remove",
    "list": f"{ROOM}.owners:owner_list",
}

owner_app = CommandLine(
    "Who may send reports.", OWNER_COMMANDS | {"certificate": f"{ROOM}.keys:owner_certificate"}
)
database_app = CommandLine(
    "The database of campaigns.", {"upgrade": f"{ROOM}.stored:upgrade_database"}
)
# In the order of the help.
COMMANDS = {
    "init": f"{ROOM}.keys:init",
    "serve": f"{ROOM}.serve:serve",
    "chain": f"{ROOM}.chain:chain_command",
    "campaign": f"{ROOM}.campaign:campaign_app",
    "owner": f"{ROOM}.server:owner_app",
    "db": f"{ROOM}.server:database_app",
}

app = CommandLine(__doc__, COMMANDS)


if __name__ == "__main__":
    app()
