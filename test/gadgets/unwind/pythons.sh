#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pythons.sh: lists the CPython interpreters of this machine to test the unwinder
# with, python3.N in PATH and pyenv's, one per line: name, minor version, build,
# source, root directory, executable; tabs between. It fails when PATH has none.
#
# pythons.sh all: makes such a list as build/python/list, with what it fetches into
# build/python, once:
#   - those of Debian's other suites, with their libc, to be run in a chroot; for
#     each also an executable that is linked to the shared libpython;
#   - python-build-standalone, which is what uv installs, as a Go module has it;
#   - Debian's source of 3.13, which is built without the GIL: no suite has it.
# What a mirror does not have (any more) is named on stderr and left out. apt's
# own lists, cache and configuration are not touched; packages are verified with
# Debian's keys, modules with the sums below.
set -euo pipefail
cd "$(dirname "$0")/../../.."

out=$PWD/build/python
keys=/usr/share/keyrings/debian-archive-keyring.gpg
oldest=7 newest=15 # minor versions that the unwinder knows

fail() {
	echo "pythons.sh: $*" >&2
	exit 1
}

say() { echo "==> $*" >&2; }

# row NAME SOURCE ROOT EXECUTABLE: queries the interpreter's version.
row() {
	local in=() facts ask='import sys, sysconfig
build = "shared" if "/libpython3" in open("/proc/self/maps").read() else "static"
if sysconfig.get_config_var("Py_GIL_DISABLED"): build = "free-threaded"
print("%d\t%s\t%d.%d.%d" % ((sys.version_info[1], build) + sys.version_info[:3]))'
	[ "$3" = - ] || in=(unshare -m test/gadgets/unwind/testdata/inroot.sh "$3" --)
	facts=$("${in[@]}" "$4" -c "$ask") || fail "$4 of $1 does not run"
	printf '%s\t%s, %s\t%s\t%s\n' "$1" "$facts" "$2" "$3" "$4"
}

# once PATH: its real path, unless that was given before or is pyenv's.
once() {
	local real
	real=$(realpath -e "$1" 2>/dev/null) || return 1
	[[ " ${seen[*]} " != *" $real "* && $1 != */shims/* && $real != */.pyenv/* ]] || return 1
	seen+=("$real")
}

installed() {
	local minor dir path dirs count=0 seen=()
	IFS=: read -ra dirs <<<"$PATH"
	for minor in $(seq $oldest $newest); do
		for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python3."$minor"; do
			[ ! -x "$path" ] || row "3.$minor" pyenv - "$path"
		done
		for dir in "${dirs[@]}"; do
			once "$dir/python3.$minor" || continue
			row "3.$minor-system" "this machine's" - "${seen[-1]}"
			count=$((count + 1))
		done
	done
	[ "$count" -gt 0 ] || fail "no python3.$oldest to python3.$newest in PATH: install Debian's python3"
}

# apt_in DIR PROGRAM ARGUMENTS…: apt with a state of its own in DIR, in which
# nothing is installed.
apt_in() {
	local dir=$1 program=$2
	shift 2
	"$program" -qq -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
		-o Dir::State::Lists="$dir/lists" -o Dir::State::status="$dir/status" -o Dir::Cache="$dir/cache" \
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
		-o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User= \
		-o APT::Install-Recommends=0 "$@"
}

# apt_for SUITE DIR [TYPE]
apt_for() {
	local suite=$1 dir=$2 type=${3:-deb}
	rm -rf "$dir"
	mkdir -p "$dir"/{lists,cache/archives}/partial
	touch "$dir/status"
	echo "$type [signed-by=$keys] $mirror $suite main" >"$dir/sources.list"
	case $suite in
	bullseye | bookworm | trixie)
		echo "$type [signed-by=$keys] $mirror-security $suite-security main" >>"$dir/sources.list"
		;;
	esac
	apt_in "$dir" apt-get update >&2 || true # a suite without security is one still
}

# embed LIBRARIES LIBPYTHON PROGRAM: links testdata/main.c to that libpython and to
# the C library beside it. Not by --sysroot: Debian's gcc takes its own first.
embed() {
	cc -nostdlib -no-pie -o "$3" "$1"/crt1.o "$1"/crti.o test/gadgets/unwind/testdata/main.c "$1/$2" \
		"$1"/libc.so.6 "$1"/libc_nonshared.a "$1"/crtn.o -Wl,--unresolved-symbols=ignore-in-shared-libs
}

# debian SUITE MINOR…: puts the suite's interpreters into build/python/SUITE.
debian() {
	local suite=$1 root=$out/$1 apt=$out/.apt-$1 new=$out/.new-$1 minor deb packages=() name
	shift
	if [ ! -e "$root/.done" ]; then
		say "fetch Python of Debian $suite"
		apt_for "$suite" "$apt"
		for minor in "$@"; do
			name=python3.$minor
			[ -n "$(apt_in "$apt" apt-cache madison "$name")" ] || {
				say "not tested: Debian $suite has no $name (any more)"
				continue
			}
			# The C library's start files are for the program that embeds it.
			packages+=("$name" "lib$name" libc6-dev)
		done
		[ ${#packages[@]} -gt 0 ] || return 0
		# The suite's own: archived security updates are not on every mirror.
		for name in python3-greenlet python3-gevent; do
			packages+=("$name=$(apt_in "$apt" apt-cache madison "$name" |
				awk -v from="$suite/main" '$6 == from { print $3; exit }')")
		done
		apt_in "$apt" apt-get -y -d install "${packages[@]}" >&2 ||
			fail "apt-get does not download ${packages[*]} of $suite"
		rm -rf "$new"
		mkdir -p "$new"/usr/{lib,lib64,bin,sbin} "$new"/{tmp,proc,dev}
		for name in lib lib64 bin sbin; do ln -s "usr/$name" "$new/$name"; done
		for deb in "$apt"/cache/archives/*.deb; do
			dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$new" --keep-directory-symlink
		done
		for minor in "$@"; do
			[ -x "$new/usr/bin/python3.$minor" ] || continue
			embed "$new/usr/lib/x86_64-linux-gnu" "libpython3.$minor.so.1.0" "$new/usr/bin/python3.$minor-shared" ||
				fail "libpython3.$minor of $suite cannot be linked to"
		done
		touch "$new/.done"
		rm -rf "$root" "$apt"
		mv "$new" "$root"
	fi
	for minor in "$@"; do
		[ -x "$root/usr/bin/python3.$minor" ] || continue
		row "3.$minor-$suite" "Debian $suite" "$root" "/usr/bin/python3.$minor"
		row "3.$minor-$suite-shared" "Debian $suite" "$root" "/usr/bin/python3.$minor-shared"
	done
}

# standalone MINOR VERSION SUM
standalone() {
	local minor=$1 version=$2 dir=$out/standalone-3.$1 module=github.com/kluctl/go-embed-python said
	if [ ! -e "$dir/.done" ]; then
		say "fetch python-build-standalone $version"
		said=$(cd "$out" && GOFLAGS=-mod=mod go mod download -json "$module@$version" 2>&1) || {
			say "not tested: the Go module proxy has no $module@$version"
			return 0
		}
		[[ $said == *"$3"* ]] || fail "$module@$version is not what it was: $said"
		rm -rf "$dir"
		cp -r "$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$said")/python/internal/data/linux-amd64" "$dir"
		chmod -R u+w "$dir"
		find "$dir" -name '*.gz' -exec gunzip -q {} +
		chmod +x "$dir"/bin/*
		touch "$dir/.done"
	fi
	row "3.$minor-standalone" python-build-standalone - "$dir/bin/python3.$minor"
}

# without_gil SUITE MINOR: builds Debian's source with --disable-gil.
# Its Makefile wants the built-in rules that ours switches off for all below it.
without_gil() {
	local suite=$1 minor=$2 dir=$out/3.$2t apt=$out/.apt-source
	if [ ! -e "$dir/.done" ]; then
		say "build CPython 3.$minor without the GIL from Debian's source, some minutes"
		echo '#include <ffi.h>' | cc -fsyntax-only -xc - 2>/dev/null || apt-get install -y -q libffi-dev >&2
		apt_for "$suite" "$apt" deb-src
		(cd "$apt" && apt_in "$apt" apt-get source --download-only "python3.$minor" >&2) || {
			say "not tested: Debian $suite has no source of 3.$minor (any more)"
			return 0
		}
		rm -rf "$dir"
		mkdir "$apt/source"
		tar -x -C "$apt/source" --strip-components=1 -f "$apt"/python3."$minor"_*.orig.tar.xz
		(cd "$apt/source" && ./configure -q --disable-gil --without-ensurepip --disable-test-modules \
			--prefix="$dir" CFLAGS=-O1 && MAKEFLAGS='' make -s -j2 && MAKEFLAGS='' make -s install) >"$out/3.${minor}t.log" 2>&1 ||
			fail "the build failed, see $out/3.${minor}t.log"
		touch "$dir/.done"
		rm -rf "$apt"
	fi
	row "3.${minor}t" "Debian $suite's source" - "$dir/bin/python3.$minor"
}

if [ "${1:-}" != all ]; then
	installed
	exit
fi

[ "$(uname -m)" = x86_64 ] || fail "the packages are x86-64, this machine is $(uname -m)"
command -v apt-get >/dev/null || fail "the interpreters come as Debian packages, and there is no apt-get here"
[ "$(id -u)" -eq 0 ] || fail "needs root, for chroot"
[ -e $keys ] || fail "please install debian-archive-keyring"
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
	awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }')}
mirror=${mirror%/}
[ -n "$mirror" ] || fail "this machine's packages are not Debian's: set DEBIAN_MIRROR to a mirror's address"

mkdir -p "$out"
exec 9>"$out/.lock" # one at a time
flock 9
exec >"$out/list.new"
installed
debian bullseye 9
debian bookworm 11
debian trixie 13
debian sid 13 14 15
standalone 10 v0.0.0-3.10.16-20241219-1 h1:bfJRrtWlbdrPtwXXXZzA95yj2Pr9AvSbxDEm8YvbaP0=
standalone 11 v0.0.0-3.11.11-20241219-1 h1:yVXFTxa6cvhLC6TwkDEHmNaiWlDyaFEGiXd1DQdoeOU=
standalone 14 v0.0.0-3.14.6-20260610-1 h1:oGUS7++Wm3LgxUfD6AmJgKbKQD2wdQFO9PzyJv6T+E4=
without_gil trixie 13
mv "$out/list.new" "$out/list"
say "$(grep -c . "$out/list") interpreters: build/python/list"
