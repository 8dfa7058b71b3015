// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/localmanager"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
	log "github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
)

const usual = "/run/containerd/containerd.sock"

// local is LocalManager; it keeps the socket that it was started with.
type local struct {
	operators.DataOperator
	socket string
}

func (l *local) Init(global *params.Params) error {
	l.socket = global.Get(localmanager.ContainerdSocketPath).AsString()
	return nil
}

func (l *local) InstantiateDataOperator(operators.GadgetContext, api.ParamValues) (operators.DataOperatorInstance, error) {
	return run{}, nil
}

type run struct{ operators.DataOperatorInstance }

func (run) PreStart(operators.GadgetContext) error { return nil }

// node is a machine on which containerd listens at these sockets.
func node(t *testing.T, sockets ...string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") // a socket's path has at most 107 bytes
	require.NoError(t, err)
	root := host.HostRoot
	host.HostRoot = dir
	t.Cleanup(func() { host.HostRoot = root; os.RemoveAll(dir) })
	for _, socket := range sockets {
		path := filepath.Join(dir, socket)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
	}
}

func TestContainerdOfDistributionsIsFound(t *testing.T) {
	k3s := distributions()[0]
	for _, c := range []struct {
		name    string
		sockets []string
		set     string
		want    string
		has     bool
	}{
		{"none", nil, "", usual, false},
		{"containerd", []string{usual}, "", usual, true},
		{"k3s", []string{k3s}, "", k3s, true},
		{"k0s", []string{"/run/k0s/containerd.sock"}, "", "/run/k0s/containerd.sock", true},
		{"microk8s", []string{distributions()[2]}, "", distributions()[2], true},
		{"k3s beside Docker's containerd", []string{usual, k3s}, "", k3s, true},
		{"the user's choice", []string{usual, k3s}, usual, usual, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			node(t, c.sockets...)
			global := (&params.ParamDescs{{Key: localmanager.ContainerdSocketPath, DefaultValue: usual}}).ToParams()
			if c.set != "" {
				require.NoError(t, global.Set(localmanager.ContainerdSocketPath, c.set))
			}
			inner := &local{}
			m := Wrap(inner)
			require.NoError(t, m.Init(global))
			require.Equal(t, c.want, inner.socket)
			require.Equal(t, c.has, HasRuntime())
			require.Equal(t, c.set != "", global.Get(localmanager.ContainerdSocketPath).IsSet(), "the parameters are the user's")

			logger, logs := logtest.NewNullLogger()
			logger.SetLevel(log.WarnLevel)
			gc := gadgetcontext.New(t.Context(), "cuda_alloc", gadgetcontext.WithLogger(logger))
			for _, values := range []api.ParamValues{{localmanager.Host: "true"}, {}} {
				require.Empty(t, logs.AllEntries())
				instance, err := m.InstantiateDataOperator(gc, values)
				require.NoError(t, err)
				require.Empty(t, logs.AllEntries(), "a gadget that is described")
				require.NoError(t, instance.(operators.PreStart).PreStart(gc))
			}
			require.Equal(t, !c.has, len(logs.AllEntries()) == 1)
		})
	}
}

func TestASocketWithoutARuntimeIsNotTaken(t *testing.T) {
	microk8s := distributions()[2]
	node(t)
	path := filepath.Join(host.HostRoot, microk8s)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
	require.Empty(t, distribution())
	require.False(t, HasRuntime())
}
