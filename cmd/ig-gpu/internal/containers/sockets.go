// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	runtimeclient "github.com/inspektor-gadget/inspektor-gadget/pkg/container-utils/runtime-client"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/localmanager"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
	log "github.com/sirupsen/logrus"
)

// socketParams are LocalManager's parameters with the sockets of container runtimes.
func socketParams() []string {
	return []string{
		localmanager.DockerSocketPath, localmanager.ContainerdSocketPath,
		localmanager.CrioSocketPath, localmanager.PodmanSocketPath,
	}
}

// distributions are where Kubernetes distributions have the socket of a containerd of their own.
func distributions() []string {
	return []string{
		"/run/k3s/containerd/containerd.sock", // k3s, RKE2
		"/run/k0s/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock",
	}
}

// listenLimit is how long a runtime on the same machine may take to accept a connection.
const listenLimit = time.Second

// distribution returns the first socket of a distribution at which a containerd listens, or "".
// That there is a file is not enough: microk8s leaves its behind.
func distribution() string {
	for _, socket := range distributions() {
		conn, err := net.DialTimeout("unix", filepath.Join(host.HostRoot, socket), listenLimit)
		if err == nil {
			_ = conn.Close()
			return socket
		}
	}
	return ""
}

// withDistribution returns LocalManager's parameters with the socket of a distribution, where one
// runs and the user has named none. It takes precedence over the usual socket, which
// belongs to Docker where both are: its containers are not in the namespace of Kubernetes,
// and LocalManager has Docker itself for them.
func withDistribution(global *params.Params) *params.Params {
	named := global.Get(localmanager.ContainerdSocketPath)
	if named == nil || named.IsSet() {
		return global
	}
	socket := distribution()
	if socket == "" {
		return global
	}
	log.Debugf("containerd listens at %s", socket)
	chosen := named.ParamDesc.ToParam()
	if err := chosen.Set(socket); err != nil {
		return global
	}
	all := slices.Clone(*global)
	all[slices.Index(all, named)] = chosen
	return &all
}

// hasSocket reports whether one of the sockets that the parameters name exists.
func hasSocket(global *params.Params) bool {
	return slices.ContainsFunc(socketParams(), func(key string) bool {
		p := global.Get(key)
		return p != nil && exists(p.AsString())
	})
}

func exists(socket string) bool {
	_, err := os.Stat(filepath.Join(host.HostRoot, socket))
	return err == nil
}

// HasRuntime reports whether one of the known container runtimes has its socket
// at a usual place. A socket elsewhere is named by a flag of LocalManager,
// which then reports an unusable one as an error.
func HasRuntime() bool {
	return slices.ContainsFunc([]string{
		runtimeclient.DockerDefaultSocketPath,
		runtimeclient.ContainerdDefaultSocketPath,
		runtimeclient.CrioDefaultSocketPath,
		runtimeclient.PodmanDefaultSocketPath,
	}, exists) || distribution() != ""
}
