// SPDX-License-Identifier: Apache-2.0

// Package k8s follows docs/guides/kubernetes.md on a Kubernetes node: a real API server with
// etcd, controllers and scheduler in a network namespace of this machine, and kubelet,
// containerd and runc in a virtual machine (package vm), because Inspektor Gadget needs
// more of a kernel than this machine's has. The steps of that page are executed as they
// are written there; only the registry's name is another.
package k8s

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

const (
	// wanted is set by make, which builds the dependencies.
	wanted = "K8S"
	// isolated is set in the process that has namespaces of its own.
	isolated = "GPU_GADGETS_K8S_ISOLATED"
)

// TestMain runs the tests in namespaces of their own: no port and no network device of
// this machine is used, and with the tests ends everything that they have started.
func TestMain(m *testing.M) {
	if os.Getenv(wanted) == "" || os.Geteuid() != 0 {
		os.Exit(m.Run()) // they report why they are skipped
	}
	if os.Getenv(isolated) != "" {
		if err := isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // Pdeathsig is the thread's end
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests in namespaces of their own:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// isolate brings the namespaces into the state in which a machine boots.
func isolate() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// Where ig keeps images.
	if err := os.MkdirAll("/var/lib/ig", 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("ig", "/var/lib/ig", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /var/lib/ig: %w", err)
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", serviceAddress + "/32", "dev", "lo"},
		{"tuntap", "add", tap, "mode", "tap"},
		{"addr", "add", controlAddress + "/24", "dev", tap},
		{"link", "set", tap, "up"},
		{"route", "add", podNetwork, "via", nodeAddress},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

const (
	tap            = "tap0"
	controlAddress = "10.0.2.1"
	nodeAddress    = "10.0.2.2"
	serviceAddress = "10.96.0.1" // of the service kubernetes, the first of the network
	serviceNetwork = "10.96.0.0/16"
	podNetwork     = "10.244.0.0/24"
	nodeName       = "node-1"
	registry       = controlAddress + ":5000"
)
