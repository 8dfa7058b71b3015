#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Inspektor Gadget's own daemon and kubectl-gadget into build/k8s, from the
# version in go.mod. Left out of the daemon are its otel symbolizer, which needs a fork
# of OpenTelemetry's profiler that a go.mod can only replace for itself, and two lines
# of its log with its version, which only its own module can know. Neither takes part
# in what is tested.
set -euo pipefail
cd "$(dirname "$0")/../.."

module=github.com/inspektor-gadget/inspektor-gadget
version=$(go list -m -f '{{.Version}}' $module)
upstream=$(go list -m -f '{{.Dir}}' $module)
source=build/k8s/_daemon # by its name no part of ./...
rm -rf $source
mkdir -p $source build/k8s/daemon build/k8s/bin
cp "$upstream/gadget-container/gadgettracermanager/main.go" $source
chmod u+w $source/main.go
sed -i "\|$module/pkg/symbolizer/otel|d; \|$module/internal/version|d; /version\.Version()\|version\.UserAgent()/d" $source/main.go
export CGO_ENABLED=0
go build -buildvcs=false -ldflags "-s -w" -o build/k8s/daemon/gadgettracermanager ./$source
go build -buildvcs=false -ldflags "-s -w" -o build/k8s/daemon/cleanup $module/gadget-container/cleanup
go build -buildvcs=false -ldflags "-s -w -X main.gadgetimage=ghcr.io/inspektor-gadget/inspektor-gadget:$version" \
	-o build/k8s/bin/kubectl-gadget $module/cmd/kubectl-gadget
