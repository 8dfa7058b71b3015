// SPDX-License-Identifier: Apache-2.0

// Package containers makes Inspektor Gadget's LocalManager, the operator that
// knows the containers of this machine and owns --host and the container
// filters, usable where its assumptions do not hold: where the namespaces of
// process 1 may not be read, where a Kubernetes distribution has its containerd elsewhere,
// and where no container runtime is installed.
package containers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/localmanager"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
	log "github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Manager is LocalManager with an Init that copes with an unreadable process 1 and finds the
// containerd of Kubernetes distributions. It keeps the name, so registering it replaces the original.
type Manager struct {
	operators.DataOperator
	hasSocket bool // of a container runtime; from Init on
}

// Wrap returns manager, Inspektor Gadget's LocalManager, as a *Manager.
func Wrap(manager operators.DataOperator) *Manager {
	return &Manager{DataOperator: manager}
}

// Init reads the mount namespace of process 1, to describe "the host" as one
// more container. Sandboxes and some security modules forbid that even to root,
// and LocalManager then fails, which takes --host off the command line. In such
// a sandbox no process sees more of the host than we do, so our own process replaces
// process 1, and only while Init runs.
func (m *Manager) Init(global *params.Params) error {
	global = withDistribution(global)
	m.hasSocket = hasSocket(global)
	_, err := os.Stat(filepath.Join(host.HostProcFs, "1", "ns", "mnt"))
	if !errors.Is(err, fs.ErrPermission) {
		return m.DataOperator.Init(global)
	}
	log.Debugf("the namespaces of process 1 are not readable, ig-gpu stands in for it: %v", err)
	return asProcessOne(func() error { return m.DataOperator.Init(global) })
}

// InstantiateDataOperator has a run warn that is limited to containers, and sees none of those that run already.
func (m *Manager) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	instance, err := m.DataOperator.InstantiateDataOperator(gc, values)
	isHost, _ := strconv.ParseBool(values[localmanager.Host])
	if inner, ok := instance.(traced); ok && err == nil && !isHost && !m.hasSocket {
		return warning{inner}, nil
	}
	return instance, err
}

// traced is an instance of LocalManager.
type traced interface {
	operators.DataOperatorInstance
	operators.PreStart
}

// warning is an instance that warns when it has begun: instances of gadgets that are only described do not.
type warning struct{ traced }

// PreStart implements operators.PreStart.
func (w warning) PreStart(gc operators.GadgetContext) error {
	if err := w.traced.PreStart(gc); err != nil {
		return err
	}
	gc.Logger().Warnf("no container runtime was found: only containers that start from now on are traced; "+
		"name the runtime's socket (--%s and others), or trace all processes with --%s", localmanager.ContainerdSocketPath, localmanager.Host)
	return nil
}

// asProcessOne calls f on a thread that sees this process as process 1 in
// /proc. The other threads, and with them everything that f starts, see the
// real one: Go starts new threads from a clean one, never from a locked one.
func asProcessOne(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked, so that the thread, and the mounts that only it sees,
		// end with this goroutine.
		runtime.LockOSThread()
		if err := coverProcessOne(); err != nil {
			done <- fmt.Errorf("stand in for process 1: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

func coverProcessOne() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mount namespace: %w", err)
	}
	// Without this the bind mount below would propagate to all other namespaces.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	self := filepath.Join(host.HostProcFs, fmt.Sprint(os.Getpid()))
	one := filepath.Join(host.HostProcFs, "1")
	if err := unix.Mount(self, one, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s over %s: %w", self, one, err)
	}
	return nil
}
