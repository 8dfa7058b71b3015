#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fetch.sh KERNEL: puts Debian's newest kernel of a version (6.1, 6.12, …; newest:
# of all; arm64-6.1: for that processor) and an initramfs for it into
# build/vm/KERNEL, and installs what is missing of QEMU's tools. For arm64 it also
# puts the files of such a machine, with three versions of Python, into
# build/vm/arm64-root. Packages come from DEBIAN_MIRROR, or else the mirror that this
# machine uses, through a state of apt's of our own: the system's is not touched, and
# packages are only unpacked. When this machine cannot do that at all, it exits with
# 3, and the last line on stderr says why.
set -euo pipefail
cd "$(dirname "$0")/../../.."

kernel=${1:?fetch.sh KERNEL}
source=$PWD/test/support/vm
vm=$PWD/build/vm
dir=$vm/$kernel
state=$vm/apt
arch=amd64
emulator="qemu-system-x86"
qemu="qemu-system-x86_64"
suites="bookworm trixie sid"
secured="bullseye-security bookworm-security"
case $kernel in arm64-*)
	arch=arm64
	state=$vm/apt-arm64
	emulator="qemu-system-arm"
	qemu="qemu-system-aarch64"
	# Security updates of an archived suite are listed, and gone, for arm64.
	suites="bullseye $suites"
	secured="bookworm-security trixie-security"
	;;
esac

cannot() {
	echo "$*" >&2
	exit 3
}

[ "$(uname -m)" = x86_64 ] || cannot "the virtual machine is x86-64, this machine is $(uname -m)"
command -v apt-get >/dev/null || cannot "kernels come as Debian packages, and there is no apt-get here"

mkdir -p "$vm"
exec 9>"$vm/lock" # one at a time
flock 9

missing=()
command -v "$qemu" >/dev/null || missing+=("$emulator")
# Part of QEMU up to 7, a package since.
virtiofsd() { [ -x /usr/lib/qemu/virtiofsd ] || [ -x /usr/libexec/virtiofsd ]; }
virtiofsd || missing+=("$emulator")
# It runs in the initramfs, without libraries.
{ command -v busybox && ! ldd "$(command -v busybox)"; } >/dev/null 2>&1 || missing+=(busybox-static)
command -v xz >/dev/null || missing+=(xz-utils)
if [ ${#missing[@]} -gt 0 ]; then
	[ "$(id -u)" -eq 0 ] || cannot "please install ${missing[*]}"
	echo "==> install ${missing[*]}" >&2
	{ apt-get update -qq &&
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" &&
		{ virtiofsd || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends virtiofsd; }; } >&2 ||
		cannot "apt-get does not install ${missing[*]} and virtiofsd"
fi

# apt with Debian's suites, whatever this machine's are.
apt() {
	local program=$1
	shift
	"$program" -q -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$state/lists" -o Dir::Cache="$state/cache" \
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
		-o APT::Architecture=$arch -o APT::Architectures=$arch -o APT::Sandbox::User= "$@"
}

# update gets the lists of packages, once.
update() {
	[ ! -e "$state/updated" ] || return 0
	local mirror suite
	mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }')}
	[ -n "$mirror" ] || cannot "this machine's packages are not Debian's: set DEBIAN_MIRROR to a mirror's address"
	local keys=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -e "$keys" ] || cannot "please install debian-archive-keyring"
	rm -rf "$state"
	mkdir -p "$state"/{lists,cache/archives}/partial
	: >"$state/status"
	for suite in $suites; do
		echo "deb [signed-by=$keys] ${mirror%/} $suite main"
	done >"$state/sources.list"
	for suite in $secured; do
		echo "deb [signed-by=$keys] ${mirror%/}-security $suite main"
	done >>"$state/sources.list"
	# A suite that is archived is missing then; the others are still good.
	apt apt-get update >&2 || true
	touch "$state/updated"
}

# What stands between the kernel and our files, and the network, in the order of
# dependence; some are built in.
modules="virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci fuse virtiofs overlay
	failover net_failover virtio_net veth"

# Packages do not change: what is here stays, until make clean.
if [ ! -e "$dir/vmlinuz" ] || [ "$modules" != "$(cat "$dir/modules/list" 2>/dev/null)" ]; then
	update
	# linux-image-6.1.0-56-cloud-amd64, linux-image-6.12.107+deb13-cloud-amd64: not
	# the packages that only point to these, and no backports.
	version=${kernel#arm64-}
	version=${version//./\\.}
	[ "${kernel#arm64-}" != newest ] || version='[0-9]+\.[0-9]+'
	release=$(apt apt-cache pkgnames linux-image- |
		sed -nE "s/^linux-image-($version\.[0-9]+[^ ]*-cloud-$arch)$/\1/p" | grep -vE 'deb[0-9]+\.|unsigned' |
		sort -V | tail -1 || true)
	[ -n "$release" ] || cannot "Debian has no package of Linux $kernel (any more?)"
	echo "==> fetch Linux $release" >&2
	rm -rf "$dir"
	mkdir -p "$dir/packages"
	# Since Linux 7 the parts are packages of their own.
	# shellcheck disable=SC2046 # an argument for each package
	(cd "$dir/packages" && apt apt-get download "linux-image-$release" \
		$(apt apt-cache pkgnames linux- | grep -xE "linux-(binary|modules)-${release//+/\\+}") >&2)
	for package in "$dir"/packages/*.deb; do dpkg -x "$package" "$dir/packages/root"; done

	mkdir -p "$dir/modules"
	n=10
	for module in $modules; do
		path=$(find "$dir/packages/root" -name "$module.ko" -o -name "$module.ko.xz")
		n=$((n + 1))
		case $path in
		*.xz) xz -dc "$path" >"$dir/modules/$n-$module.ko" ;;
		*.ko) cp "$path" "$dir/modules/$n-$module.ko" ;;
		esac
	done
	echo "$modules" >"$dir/modules/list"
	cp "$(find "$dir/packages/root" -name "vmlinuz*")" "$dir/vmlinuz.new"
	rm -rf "$dir/packages"
	echo "$release" >"$dir/release"
	mv "$dir/vmlinuz.new" "$dir/vmlinuz"
fi

# The files of arm64's machine, of Debian 13 where it has them: that is built with
# pointer authentication. No package is configured.
busybox=$(command -v busybox)
if [ $arch = arm64 ]; then
	packages="bash busybox-static coreutils iproute2 libc-bin mount util-linux python3.9 python3.11 python3.13"
	if [ "$packages" != "$(cat "$vm/arm64-root/packages" 2>/dev/null)" ]; then
		update
		echo "==> fetch Debian for arm64" >&2
		# shellcheck disable=SC2086 # names, one word each
		apt apt-get install -y -d -o Dir::State::status="$state/status" -o APT::Default-Release=trixie \
			-o APT::Install-Recommends=0 $packages >&2
		rm -rf "$vm/arm64-new" "$vm/arm64-root"
		mkdir -p "$vm"/arm64-new/usr/{bin,sbin,lib}
		for directory in bin sbin lib; do ln -s usr/$directory "$vm/arm64-new/$directory"; done
		for package in "$state"/cache/archives/*.deb; do
			dpkg-deb --fsys-tarfile "$package" | tar -x -C "$vm/arm64-new" --keep-directory-symlink
		done
		ln -s bash "$vm/arm64-new/usr/bin/sh"
		ln -s python3.11 "$vm/arm64-new/usr/bin/python3"
		mkdir -p "$vm"/arm64-new/{dev,proc,sys,run,tmp,root}
		echo "$packages" >"$vm/arm64-new/packages"
		mv "$vm/arm64-new" "$vm/arm64-root"
		rm -f "$state"/cache/archives/*.deb
	fi
	busybox=$vm/arm64-root/usr/bin/busybox
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,proc,sys,modules,host,over,root}
cp "$busybox" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
cp "$source/init.sh" "$root/init"
chmod 755 "$root/init"
find "$dir/modules" -name '*.ko' -exec cp -t "$root/modules" {} +
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$dir/initramfs.new"
mv "$dir/initramfs.new" "$dir/initramfs"
