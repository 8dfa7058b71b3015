#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fetch.sh KERNEL: puts Debian's newest kernel of a version (6.1, 6.12, …; newest:
# of all) and an initramfs for it into build/vm/KERNEL, and installs what is
# missing of QEMU's tools. Packages come from DEBIAN_MIRROR, or else the mirror
# that this machine uses, through a state of apt's of our own: the system's is not
# touched, and kernels are only unpacked. When this machine cannot do that at
# all, it exits with 3, and the last line on stderr says why.
set -euo pipefail
cd "$(dirname "$0")/../.."

kernel=${1:?fetch.sh KERNEL}
source=$PWD/test/vm
vm=$PWD/build/vm
dir=$vm/$kernel

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
command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
# Part of QEMU up to 7, a package since.
[ -x /usr/lib/qemu/virtiofsd ] || [ -x /usr/libexec/virtiofsd ] || missing+=(virtiofsd)
# It runs in the initramfs, without libraries.
{ command -v busybox && ! ldd "$(command -v busybox)"; } >/dev/null 2>&1 || missing+=(busybox-static)
command -v xz >/dev/null || missing+=(xz-utils)
if [ ${#missing[@]} -gt 0 ]; then
	[ "$(id -u)" -eq 0 ] || cannot "please install ${missing[*]}"
	echo "==> install ${missing[*]}" >&2
	{ apt-get update -qq &&
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >&2 ||
		cannot "apt-get does not install ${missing[*]}"
fi

# apt with Debian's suites, whatever this machine's are.
apt() {
	local program=$1
	shift
	"$program" -q -o Dir::Etc::SourceList="$vm/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$vm/apt/lists" -o Dir::Cache="$vm/apt/cache" \
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
		-o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User= "$@"
}

# Packages do not change: what is here stays, until make clean.
if [ ! -e "$dir/vmlinuz" ]; then
	if [ ! -e "$vm/apt/updated" ]; then
		mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
			awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }')}
		[ -n "$mirror" ] || cannot "this machine's packages are not Debian's: set DEBIAN_MIRROR to a mirror's address"
		keys=/usr/share/keyrings/debian-archive-keyring.gpg
		[ -e "$keys" ] || cannot "please install debian-archive-keyring"
		rm -rf "$vm/apt"
		mkdir -p "$vm"/apt/{lists,cache/archives}/partial
		for suite in bookworm trixie sid; do
			echo "deb [signed-by=$keys] ${mirror%/} $suite main"
		done >"$vm/apt/sources.list"
		for suite in bullseye-security bookworm-security; do
			echo "deb [signed-by=$keys] ${mirror%/}-security $suite main"
		done >>"$vm/apt/sources.list"
		# A suite that is archived is missing then; the others are still good.
		apt apt-get update >&2 || true
		touch "$vm/apt/updated"
	fi
	# linux-image-6.1.0-56-cloud-amd64, linux-image-6.12.107+deb13-cloud-amd64: not
	# the packages that only point to these, and no backports.
	version=${kernel//./\\.}
	[ "$kernel" != newest ] || version='[0-9]+\.[0-9]+'
	release=$(apt apt-cache pkgnames linux-image- |
		sed -nE "s/^linux-image-($version\.[0-9]+[^ ]*-cloud-amd64)$/\1/p" | grep -vE 'deb[0-9]+\.|unsigned' |
		sort -V | tail -1 || true)
	[ -n "$release" ] || cannot "Debian has no package of Linux $kernel (any more?)"
	echo "==> fetch Linux $release" >&2
	rm -rf "$dir"
	mkdir -p "$dir/packages"
	# Since Linux 7 the parts are packages of their own.
	(cd "$dir/packages" && apt apt-get download "linux-image-$release" \
		$(apt apt-cache pkgnames linux- | grep -xE "linux-(binary|modules)-${release//+/\\+}") >&2)
	for package in "$dir"/packages/*.deb; do dpkg -x "$package" "$dir/packages/root"; done

	# What stands between the kernel and our files, in the order of dependence;
	# some are built in.
	mkdir -p "$dir/modules"
	n=10
	for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci fuse virtiofs overlay; do
		path=$(find "$dir/packages/root" -name "$module.ko" -o -name "$module.ko.xz")
		n=$((n + 1))
		case $path in
		*.xz) xz -dc "$path" >"$dir/modules/$n-$module.ko" ;;
		*.ko) cp "$path" "$dir/modules/$n-$module.ko" ;;
		esac
	done
	cp "$(find "$dir/packages/root" -name "vmlinuz*")" "$dir/vmlinuz.new"
	rm -rf "$dir/packages"
	echo "$release" >"$dir/release"
	mv "$dir/vmlinuz.new" "$dir/vmlinuz"
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,proc,sys,modules,host,over,root}
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
cp "$source/init.sh" "$root/init"
chmod 755 "$root/init"
find "$dir/modules" -name '*.ko' -exec cp -t "$root/modules" {} +
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$dir/initramfs.new"
mv "$dir/initramfs.new" "$dir/initramfs"
