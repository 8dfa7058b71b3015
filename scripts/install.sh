#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs ig-gpu and gpu-exporter, with man pages and completion, from a directory or a
# URL that has the files of a release:
#
#     sh install.sh --from DIR|URL [--prefix /usr/local] [--key cosign.pub] [--uninstall]
#
# Without --from, the directory that install.sh is in. Checksums are always checked; with
# --key the signature of the checksums, too, for which openssl is needed.
set -eu

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

from=$(dirname "$0") prefix=/usr/local key='' uninstall=''
while [ $# -gt 0 ]; do
	case $1 in
	--from | --prefix | --key)
		[ $# -ge 2 ] || fail "$1 needs a value"
		case $1 in --from) from=$2 ;; --prefix) prefix=$2 ;; --key) key=$2 ;; esac
		shift 2
		;;
	--uninstall) uninstall=1 && shift ;;
	-h | --help) sed -n '4,11s/^# \{0,1\}//p' "$0" && exit 0 ;;
	*) fail "unknown argument $1 (see --help)" ;;
	esac
done

list=$prefix/share/doc/gpu-gadgets/installed
if [ -n "$uninstall" ]; then
	[ -f "$list" ] || fail "nothing of gpu-gadgets is installed in $prefix"
	while read -r name; do rm -f "$prefix/$name"; done <"$list"
	rm -f "$list"
	rmdir "$prefix/share/doc/gpu-gadgets" 2>/dev/null || true
	echo "Removed gpu-gadgets from $prefix"
	exit 0
fi

[ "$(uname -s)" = Linux ] || fail "gpu-gadgets runs on Linux only"
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "there is no release for $(uname -m): only for x86_64 and aarch64" ;;
esac
for tool in tar gzip sha256sum; do
	command -v $tool >/dev/null || fail "$tool is needed, and not installed"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# get NAME: the file of the release, in $work.
get() {
	case $from in
	http://* | https://*)
		if command -v curl >/dev/null; then
			curl -fsSL -o "$work/$1" "$from/$1"
		elif command -v wget >/dev/null; then
			wget -q -O "$work/$1" "$from/$1"
		else
			fail "curl or wget is needed for a URL, and neither is installed"
		fi || fail "cannot fetch $from/$1"
		;;
	*) cp "$from/$1" "$work/$1" 2>/dev/null || fail "$from has no $1: is it the directory of a release?" ;;
	esac
}

get SHA256SUMS
if [ -n "$key" ]; then
	command -v openssl >/dev/null || fail "openssl is needed to check the signature, and not installed"
	get SHA256SUMS.sig
	openssl base64 -d -A -in "$work/SHA256SUMS.sig" -out "$work/signature"
	openssl dgst -sha256 -verify "$key" -signature "$work/signature" "$work/SHA256SUMS" >/dev/null ||
		fail "the checksums were not signed with the key $key: do not use these files"
fi
tarball=$(sed -n "s/^[0-9a-f]*  \(gpu-gadgets-v[^ /]*-linux-$arch\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
[ -n "$tarball" ] || fail "SHA256SUMS names no tarball for $arch"
get "$tarball"
grep "  $tarball\$" "$work/SHA256SUMS" >"$work/sum"
(cd "$work" && sha256sum -c sum >/dev/null 2>&1) || fail "$tarball does not have the checksum of SHA256SUMS: do not use it"

tar -xzf "$work/$tarball" -C "$work"
tree=$work/${tarball%.tar.gz}
mkdir -p "$prefix/share/doc/gpu-gadgets" 2>/dev/null || fail "cannot write to $prefix: run it as root, or choose --prefix"
(cd "$tree" && find . -type f | sed 's|^\./||' | sort) >"$work/installed"
while read -r name; do
	mkdir -p "$prefix/${name%/*}"
	cp "$tree/$name" "$prefix/$name.new"
	mv "$prefix/$name.new" "$prefix/$name" # a program that runs is replaced at once
done <"$work/installed"
if [ -f "$list" ]; then # what the version before had, and this one has not
	while read -r name; do
		grep -qxF "$name" "$work/installed" || rm -f "$prefix/$name"
	done <"$list"
fi
cp "$work/installed" "$list"
echo "Installed $("$prefix/bin/ig-gpu" --version) in $prefix"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "Add $prefix/bin to PATH" ;; esac
echo "Next: sudo ig-gpu check"
