#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches what the node and the workload's image are made of, as Debian packages it,
# and unpacks it into build/k8s/node and build/k8s/python. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. test/support/fixtures/package.sh

# tree NAME: the directory of NAME with the links that Debian's base-files has.
tree() {
	rm -rf "build/k8s/$1"
	mkdir -p "build/k8s/$1"/root/usr/{bin,sbin,lib,lib64}
	for directory in bin sbin lib lib64; do ln -s "usr/$directory" "build/k8s/$1/root/$directory"; done
}

if [ ! -e build/k8s/node/done ]; then
	echo "==> fetch containerd, runc, network plugins"
	tree node
	unpack "$PWD/build/k8s/node" main containerd runc containernetworking-plugins bpftool
	touch build/k8s/node/done
fi

if [ ! -e build/k8s/python/done ]; then
	echo "==> fetch Python for the workload's image"
	tree python
	unpack "$PWD/build/k8s/python" main python3.11-minimal libpython3.11-minimal libpython3.11-stdlib \
		libc6 libc-bin zlib1g libexpat1 libffi8
	root=build/k8s/python/root
	rm -rf $root/usr/share/{doc,man,locale,lintian} $root/usr/lib/x86_64-linux-gnu/gconv \
		$root/usr/lib/python3.11/{test,idlelib,distutils,pydoc_data}
	ln -sf python3.11 $root/usr/bin/python3
	touch build/k8s/python/done
fi
