#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# main.sh: the first process after init.sh, in the host's root. It reaps orphaned
# processes, as bash does by itself.
export PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
ulimit -n 65536
bash /run/vm/command </dev/null >/run/vm/stdout 2>/run/vm/stderr
echo $? >/run/vm/status.new
mv /run/vm/status.new /run/vm/status # whole, or not there
sync
echo o >/proc/sysrq-trigger
sleep 60
