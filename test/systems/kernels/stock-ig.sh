#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# stock-ig.sh [FILE]: builds Inspektor Gadget's own ig, as build/vm/ig by default,
# from the version in go.mod, for GOARCH. Its otel symbolizer is left out: that needs a
# fork of OpenTelemetry's profiler, which a go.mod can only replace for itself. It takes
# no part in attaching.
set -euo pipefail
cd "$(dirname "$0")/../../.."

module=github.com/inspektor-gadget/inspektor-gadget
source=build/vm/_ig # by its name no part of ./...
rm -rf $source
mkdir -p $source
cp "$(go list -m -f '{{.Dir}}' $module)"/cmd/ig/*.go $source
chmod u+w $source/*.go
sed -i "\|$module/pkg/symbolizer/otel|d" $source/main.go
go build -buildvcs=false -ldflags "-s -w" -o "${1:-build/vm/ig}" ./$source
