#!/bin/sh
# An owner's SuperNode. With launchers in the owner's folder (`confide-client pin HOME/launchers --allow HASH`) it runs the
# installed client only; without them it runs whatever client code a run brings along, and says so.
# Usage: supernode.sh HOME SUPERLINK CA RECORDS [MODEL]   (HOME: the folder that `confide-client init` filled)
set -eu
if [ "$#" -lt 4 ] || [ "$#" -gt 5 ]; then
    echo "usage: $0 HOME SUPERLINK CA RECORDS [MODEL]" >&2
    exit 2
fi
export FLWR_HOME="${FLWR_HOME:-$1/flwr}" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
mkdir -p "$FLWR_HOME"
if [ -d "$1/launchers" ]; then
    export PATH="$1/launchers:$PATH"
else
    echo "warning: no launchers in $1: this node runs the code it is sent; see confide-client pin --help" >&2
fi
# Where and by what networks are trained: the owner's choice, `auto` unless it is set.
config="home=\"$1\" records=\"$4\" device=\"${CONFIDE_DEVICE:-auto}\" engine=\"${CONFIDE_ENGINE:-auto}\""
if [ "$#" -eq 5 ]; then
    config="$config model=\"$5\""
fi
exec flower-supernode --superlink "$2" --root-certificates "$3" --auth-supernode-private-key "$1/node.key" \
    --host 127.0.0.1 --port "${CONFIDE_NODE_PORT:-9094}" --node-config "$config"
