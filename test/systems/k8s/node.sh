#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# node.sh: containerd and kubelet in the virtual machine, until it is switched off, and a
# console: it runs the scripts that appear in /run/vm/commands. Images come from
# $REGISTRY, also those of ghcr.io. File systems that a distribution mounts at boot, and
# Inspektor Gadget needs, are mounted here.
set -eu

files=$BUILT/node/root
mount --make-rshared /
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || true
# No layers of overlayfs on top of the root's.
for directory in containerd kubelet; do
	mkdir -p /var/lib/$directory
	mount -t tmpfs -o size=4g $directory /var/lib/$directory
done

echo "$NODE_NAME" >/proc/sys/kernel/hostname
ip link set lo up
ip addr add "$NODE_ADDRESS/24" dev eth0
ip link set eth0 up
ip route add default via "$GATEWAY"
echo 1 >/proc/sys/net/ipv4/ip_forward

# At the paths of a distribution: Inspektor Gadget searches for runc.
cp "$files"/usr/bin/{containerd,containerd-shim-runc-v2,ctr} "$files"/usr/sbin/runc /usr/bin/
export LD_LIBRARY_PATH=$files/usr/lib/x86_64-linux-gnu # of libseccomp, if need be

mkdir -p /etc/cni/net.d /run/k8s
cat >/etc/cni/net.d/pods.conflist <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "mtu": 1500,
 "ipam": {"type": "host-local", "subnet": "$POD_NETWORK", "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
# shellcheck disable=SC2153 # the machine that starts this node sets it
for registry in "$REGISTRY" ghcr.io; do
	mkdir -p "/run/k8s/certs.d/$registry"
	printf 'server = "https://%s"\n[host."https://%s"]\n  capabilities = ["pull", "resolve"]\n  ca = "%s"\n' \
		"$REGISTRY" "$REGISTRY" "$CA" >"/run/k8s/certs.d/$registry/hosts.toml"
done
cat >/run/k8s/containerd.toml <<END
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$REGISTRY/pause:1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$files/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    discard_unpacked_layers = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/run/k8s/certs.d"
END
: >/run/k8s/resolv.conf
cat >/run/k8s/kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $CA}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%"}
failSwapOn: false
localStorageCapacityIsolation: false
resolvConf: /run/k8s/resolv.conf
# An emulated node is slow, not dead.
runtimeRequestTimeout: 10m
volumePluginDir: /var/lib/kubelet/plugins
END

containerd --config /run/k8s/containerd.toml >/run/vm/containerd.log 2>&1 &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
"$BUILT/bin/kubelet" --config=/run/k8s/kubelet.yaml --kubeconfig="$KUBECONFIG" \
	--hostname-override="$NODE_NAME" --node-ip="$NODE_ADDRESS" >/run/vm/kubelet.log 2>&1 &
kubelet=$!

cd /run/vm/commands
export PATH=$PATH:$files/usr/sbin
while kill -0 $kubelet 2>/dev/null; do
	for script in *.sh; do
		[ -e "$script" ] || continue
		name=${script%.sh}
		status=0
		bash "$script" >"$name.out" 2>&1 </dev/null || status=$?
		rm "$script"
		echo $status >"$name.done"
		mv "$name.done" "$name.status"
	done
	sleep 0.5
done
echo "kubelet ended: $(tail -n 20 /run/vm/kubelet.log)" >&2
exit 1
