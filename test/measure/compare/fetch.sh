#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the sampling profiler austin as Debian 13 packages it, with that
# release's C library, into build/compare, and prints the command that runs it.
# Nothing is installed. Packages come from DEBIAN_MIRROR, or else the mirror that
# this machine uses.
set -euo pipefail
cd "$(dirname "$0")/../../.."

dir=$PWD/build/compare/austin
lib=$dir/root/usr/lib/x86_64-linux-gnu
cannot() {
	echo "fetch.sh: $*" >&2
	exit 1
}

[ "$(uname -m)" = x86_64 ] || cannot "the package is for x86-64, this machine is $(uname -m)"
if [ ! -x "$dir/root/usr/bin/austin" ]; then
	command -v apt-get >/dev/null || cannot "austin comes as a Debian package, and there is no apt-get here"
	mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }')}
	[ -n "$mirror" ] || cannot "this machine's packages are not Debian's: set DEBIAN_MIRROR to a mirror's address"
	keys=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -e "$keys" ] || cannot "please install debian-archive-keyring"
	rm -rf "$dir"
	mkdir -p "$dir"/{lists,cache/archives}/partial "$dir/unpacked"
	echo "deb [signed-by=$keys] ${mirror%/} trixie main" >"$dir/sources.list"
	apt_private() {
		apt-get -q -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null \
			-o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir/cache" \
			-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
			-o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User= "$@"
	}
	apt_private update >&2
	(cd "$dir" && apt_private download austin libc6 >&2)
	for package in "$dir"/*.deb; do dpkg -x "$package" "$dir/unpacked"; done
	rm -rf "$dir"/{lists,cache} "$dir"/*.deb
	mv "$dir/unpacked" "$dir/root"
fi
# It needs a newer libc than Debian 12 has.
echo "$lib/ld-linux-x86-64.so.2 --library-path $lib $dir/root/usr/bin/austin"
