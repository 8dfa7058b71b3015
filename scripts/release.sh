#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# release.sh VERSION OUT [KEY]: builds what would be published into OUT, which must not
# exist: tarballs for amd64 and arm64, images as OCI layouts, the chart, install.sh,
# checksums; signed with KEY, if given. The same commit gives the same bytes. Nothing is
# published. DAEMON_BASE=IMAGE adds the daemon's image, made of that one of Inspektor Gadget;
# PROGRAM_BASE=IMAGE with glibc 2.36 or newer makes that of ig-gpu with NVML, which needs a C library.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1 out=$2 key=${3:-}
in=build/release-input
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
step=scripts/step.sh
reproducible=(-trimpath -buildvcs=false -ldflags "-s -w -X main.version=$version")

[ ! -e "$out" ] || { echo "release.sh: $out exists: remove it first" >&2; exit 1; }
rm -rf "$in"
mkdir -p "$in"/{bin,doc,layouts,modules,share/man/man1,share/bash-completion/completions,share/zsh/site-functions,share/fish/vendor_completions.d}

# The images inside of ig-gpu are those that are published. Later builds make their own again.
embedded=cmd/ig-gpu/internal/images/embedded
"$step" "compile the gadgets" build/gadget-images -layouts "$embedded" -o "$in/gadgets" -tag "$version"
for dir in "$embedded"/*/; do
	name=$(basename "$dir")
	cp -r "$dir" "$in/layouts/$name"
	{
		echo "pkg:generic/libbpf $(sed -n 's/^#define LIBBPF_MAJOR_VERSION //p' /usr/include/bpf/libbpf_version.h).$(sed -n 's/^#define LIBBPF_MINOR_VERSION //p' /usr/include/bpf/libbpf_version.h)"
		GOOS=wasip1 GOARCH=wasm go list -deps -f '{{with .Module}}{{with .Version}}{{$.Module.Path}} {{.}}{{end}}{{end}}' ./wasm/... | sed '/^$/d' | sort -u
	} >"$in/modules/$name"
done

if ! command -v aarch64-linux-gnu-gcc >/dev/null; then
	echo "==> install gcc-aarch64-linux-gnu"
	root=()
	[ "$(id -u)" -eq 0 ] || root=(sudo)
	"${root[@]}" apt-get update -qq
	"${root[@]}" apt-get install -y -qq --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross >/dev/null
fi
demo=cmd/ig-gpu/internal/demo/embedded
for arch in amd64 arm64; do
	cc=$([ $arch = amd64 ] && echo x86_64-linux-gnu-gcc || echo aarch64-linux-gnu-gcc)
	make --no-print-directory -s -C examples/simcuda OUT="$PWD/$in/demo/$arch" CC="$cc" CFLAGS="-O2 -g0"
	make --no-print-directory -s -C examples/demo OUT="$PWD/$in/demo/$arch" CC="$cc"
	# Each program has the demo of its own architecture only.
	rm -rf "$demo"/{amd64,arm64}
	mkdir -p "$demo/$arch" "$demo/python"
	cp "$in/demo/$arch/libcuda.so.1" "$in/demo/$arch/workload" "$demo/$arch/"
	cp examples/inference/inference.py examples/inference/cuda.py "$demo/python/"
	for program in ig-gpu gpu-exporter; do
		"$step" "build $program for $arch" env CGO_ENABLED=0 GOARCH=$arch \
			go build "${reproducible[@]}" -o "$in/bin/$arch/$program" "./cmd/$program"
	done
	[ -z "${PROGRAM_BASE:-}" ] || "$step" "build ig-gpu with NVML for $arch" env CGO_ENABLED=1 GOARCH=$arch CC="$cc" \
		CGO_CFLAGS="-O2 -Wno-deprecated-declarations" go build -tags nvml,netgo,osusergo -trimpath -buildvcs=false \
		-ldflags "-s -w -X main.version=$version -extldflags=-Wl,-z,lazy" -o "$in/with-nvml/$arch/ig-gpu" ./cmd/ig-gpu
done

rm -rf "${demo:?}/arm64" # a build here makes that of this machine again

native=$in/bin/$(go env GOHOSTARCH)/ig-gpu
"$native" man "$in/share/man/man1" 2>/dev/null
"$native" completion bash >"$in/share/bash-completion/completions/ig-gpu"
"$native" completion zsh >"$in/share/zsh/site-functions/_ig-gpu"
"$native" completion fish >"$in/share/fish/vendor_completions.d/ig-gpu.fish"
cp LICENSE README.md CHANGELOG.md SECURITY.md "$in/doc/"
cp -r LICENSES "$in/doc/"
cp scripts/install.sh "$in/install.sh"

# layered IMAGE BASE BINARIES: an image of ours on another one.
layered() {
	go run ./cmd/program-images -image "$1" -base "$2" -binaries "$3" -layout "$in/layouts/$1"
	go version -m "$3"/amd64/* | awk '$1 == "dep" { print $2, $3 }' >"$in/modules/$1"
}
if [ -n "${DAEMON_BASE:-}" ]; then
	for arch in amd64 arm64; do
		"$step" "build the daemon for $arch" env CGO_ENABLED=0 GOARCH=$arch \
			go build "${reproducible[@]}" -o "$in/daemon/$arch/gadgettracermanager" ./cmd/ig-gpu-daemon
	done
	layered ig-gpu-daemon "$DAEMON_BASE" "$in/daemon"
fi
[ -z "${PROGRAM_BASE:-}" ] || layered ig-gpu "$PROGRAM_BASE" "$in/with-nvml"

"$step" "package the chart" env CHARTS_OUT="$PWD/$in/charts" scripts/chart.sh
sed -i "s|^\(  image: {repository: ghcr.io/gpu-gadgets/ig-gpu-daemon, tag: \).*}|\1$version}|" "$in/charts/gpu-gadgets/values-daemon.yaml"
build/tools/helm package "$in/charts/gpu-gadgets" --version "${version#v}" --app-version "$version" --destination "$in" >/dev/null

"$step" "pack" go run ./cmd/release -version "$version" -in "$in" -out "$out" -key "$key"
[ -n "$key" ] || echo "    nothing is signed: KEY=FILE signs"
[ -n "${DAEMON_BASE:-}" ] || echo "    the daemon's image is not among it: DAEMON_BASE=IMAGE adds it"
[ -n "${PROGRAM_BASE:-}" ] || echo "    the image of ig-gpu is without NVML: PROGRAM_BASE=IMAGE, such as debian:bookworm-slim, adds it"
du -sh "$out" | sed 's/^/    /'
