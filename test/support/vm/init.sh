#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# init.sh: the first process of the virtual machine, run by busybox's shell. The
# root is the host's, read-only, with a file system in memory on top for what is
# written. It runs /run/vm/command, records the exit status, and switches off.
set -e # the kernel panics then, which ends the machine
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for module in /modules/*.ko; do busybox insmod "$module"; done
busybox mount -t virtiofs -o ro host /host
busybox mount -t tmpfs over /over
busybox mkdir /over/upper /over/work
busybox mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work overlay /root
for directory in proc sys dev; do busybox mount -o move /$directory /root/$directory; done
busybox mount -t tmpfs run /root/run
busybox mkdir /root/run/vm
busybox mount -t virtiofs vm /root/run/vm
exec busybox switch_root /root /bin/bash /run/vm/main
