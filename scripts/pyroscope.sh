#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pyroscope.sh PROGRAM [FLAG…]: runs a Pyroscope on loopback until Ctrl-C, at
# http://127.0.0.1:${PYROSCOPE_PORT:-4040}, with its data in ${PYROSCOPE_DATA:-build/backends/data}.
# It is for trying things out: nobody else can reach it, and it has no user interface.
set -euo pipefail
cd "$(dirname "$0")/.."

program=$1
port=${PYROSCOPE_PORT:-4040}
data=${PYROSCOPE_DATA:-$PWD/build/backends/data}
mkdir -p "$data/data"

# It advertises the host's address, where it does not listen.
flags=()
for flag in ingester.lifecycler.addr distributor.ring.instance-addr query-frontend.instance-addr \
	query-scheduler.ring.instance-addr compactor.ring.instance-addr \
	store-gateway.sharding-ring.instance-addr overrides-exporter.ring.instance-addr; do
	flags+=("-$flag=127.0.0.1")
done
echo "==> Pyroscope: http://127.0.0.1:$port (data: $data; Ctrl-C ends it)"
exec "$program" -config.file=test/systems/backends/pyroscope/pyroscope.yaml -log.level=error \
	-server.http-listen-address=127.0.0.1 "-server.http-listen-port=$port" \
	-server.grpc-listen-address=127.0.0.1 "-server.grpc-listen-port=$((port + 1))" \
	-memberlist.bind-addr=127.0.0.1 "-memberlist.bind-port=$((port + 2))" \
	-storage.filesystem.dir="$data/shared" -pyroscopedb.data-path="$data/data" \
	-compactor.data-dir="$data/compactor" -blocks-storage.bucket-store.sync-dir="$data/sync" \
	-ingester.min-ready-duration=0s "${flags[@]}" "${@:2}"
