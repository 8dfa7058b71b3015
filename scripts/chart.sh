#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# chart.sh [HELM]: assembles charts/gpu-gadgets with the chart of Inspektor Gadget that
# it depends on, and packages both with HELM, if given. The dependency comes out of the
# Go module that ig-gpu is built from, whose checksum is in go.sum; Inspektor Gadget's
# releases are made from it in the same way (charts/Makefile there). So no repository of
# charts is asked. Everything lands in build/charts or $CHARTS_OUT; prints what it made.
set -euo pipefail
cd "$(dirname "$0")/.."

helm=${1:-}
out=${CHARTS_OUT:-build/charts}
chart=$out/gpu-gadgets
module=github.com/inspektor-gadget/inspektor-gadget

read -r version source < <(go list -m -f '{{.Version}} {{.Dir}}' "$module")
[ -f "$source/charts/gadget/Chart.yaml.tmpl" ] ||
	{ echo "chart.sh: $module $version has no charts/gadget/Chart.yaml.tmpl" >&2; exit 1; }

rm -rf "$out"
mkdir -p "$chart"
cp -rL charts/gpu-gadgets/. "$chart"
# Helm may have fetched some into the source.
rm -rf "$chart/charts"
mkdir "$chart/charts"
cp -r "$source/charts/gadget" "$chart/charts/"
chmod -R u+w "$chart/charts"
dependency=$chart/charts/gadget
sed -e "s/%VERSION%/${version#v}/" -e "s/%APP_VERSION%/$version/" "$dependency/Chart.yaml.tmpl" >"$dependency/Chart.yaml"
rm "$dependency/Chart.yaml.tmpl" "$dependency/README.md.gotmpl"

if [ -z "$helm" ]; then
	echo "$chart"
	exit
fi
"$helm" package "$chart" --destination "$out" >/dev/null
ls "$out"/gpu-gadgets-*.tgz
