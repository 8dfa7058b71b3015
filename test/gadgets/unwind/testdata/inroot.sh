#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# inroot.sh ROOT DIRECTORY… -- COMMAND…: runs a command in another root, where the
# directories have the paths that they have here. In a mount namespace of its own
# (unshare -m), which takes the mounts along when it ends.
set -eu
root=$1
shift
for directory in /proc /dev /tmp; do
	mount --rbind "$directory" "$root$directory"
done
while [ "$1" != -- ]; do
	mkdir -p "$root$1"
	mount --bind "$1" "$root$1"
	shift
done
shift
exec chroot "$root" "$@"
