#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Inspektor Gadget's own daemon and kubectl-gadget into build/k8s, of the version
# in our go.mod. kubectl-gadget needs modules that our go.mod has not, so there is one
# here. Left out of the daemon are its otel symbolizer, which needs a fork of
# OpenTelemetry's profiler that a go.mod can only replace for itself, and two lines of
# its log with its version, which only its own module can know. Neither takes part in
# what is tested.
set -euo pipefail
cd "$(dirname "$0")/../../../.."

module=github.com/inspektor-gadget/inspektor-gadget
version=$(go list -m -f '{{.Version}}' $module)
out=$PWD/build/k8s
source=$out/stock
mkdir -p "$source/daemon" "$out/daemon" "$out/bin"
cp test/systems/k8s/stock/go.mod test/systems/k8s/stock/go.sum "$source"
cd "$source"
[ "$(go list -m -f '{{.Version}}' $module)" = "$version" ] ||
	{ echo "build.sh: test/systems/k8s/stock/go.mod has not $module $version, as go.mod has" >&2; exit 1; }

cp "$(go list -m -f '{{.Dir}}' $module)/gadget-container/gadgettracermanager/main.go" daemon
chmod u+w daemon/main.go
sed -i "\|$module/pkg/symbolizer/otel|d; \|$module/internal/version|d; /version\.Version()\|version\.UserAgent()/d" daemon/main.go
export CGO_ENABLED=0
go build -buildvcs=false -ldflags "-s -w" -o "$out/daemon/gadgettracermanager" ./daemon
go build -buildvcs=false -ldflags "-s -w" -o "$out/daemon/cleanup" $module/gadget-container/cleanup
go build -buildvcs=false -ldflags "-s -w -X main.gadgetimage=ghcr.io/inspektor-gadget/inspektor-gadget:$version" \
	-o "$out/bin/kubectl-gadget" $module/cmd/kubectl-gadget
