#!/bin/sh
# The aggregator's SuperLink: TLS, and only nodes whose key was registered.
# Usage: superlink.sh KEYS HOST PORT   (KEYS: the folder that `confide-aggregator init` filled)
set -eu
if [ "$#" -ne 3 ]; then
    echo "usage: $0 KEYS HOST PORT" >&2
    exit 2
fi
export FLWR_HOME="${FLWR_HOME:-$1/flwr}" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
mkdir -p "$FLWR_HOME"
exec flower-superlink \
    --ssl-ca-certfile "$1/ca.pem" --ssl-certfile "$1/server.pem" --ssl-keyfile "$1/server.key" \
    --enable-supernode-auth --database "$1/superlink.db" --host "$2" --port "$3"
