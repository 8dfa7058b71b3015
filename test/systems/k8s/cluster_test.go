// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/vm"
)

// waitLimit is how long a step may take: an emulated processor is 10 to 20 times slower
// than a real one, and this machine may be busy.
const waitLimit = 8 * time.Minute

// cluster is a control plane and one node.
type cluster struct {
	t     *testing.T
	dir   string // certificates, kubeconfigs, logs
	built string // build/k8s
	root  string // of the repository
	ca    *authority
	node  chan error // its end
	admin string     // kubeconfig
	// stopServer ends the API server.
	stopServer func()
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	dir, err := os.MkdirTemp(filepath.Join(root, "build/k8s"), "run-")
	require.NoError(t, err)
	c := &cluster{t: t, dir: dir, built: filepath.Join(root, "build/k8s"), root: root, ca: newAuthority(t, dir)}
	t.Cleanup(func() { // after all others, because it was the first
		if !t.Failed() {
			os.RemoveAll(dir)
		}
	})
	return c
}

// logState logs the cluster's state after a failure, while it still runs.
func (c *cluster) logState() {
	if !c.t.Failed() {
		return
	}
	for _, text := range []string{
		"kubectl get pods -A -o wide", "kubectl get events -A --field-selector=type=Warning",
		"kubectl logs -n gadget ds/gadget --tail=30", "kubectl logs -n gpu-gadgets ds/gpu-gpu-gadgets --tail=30",
	} {
		out, err := c.try(c.admin, text)
		c.t.Logf("%s\n%s%v", text, out, err)
	}
	c.t.Log("logs of the cluster: " + c.dir)
}

// start runs a program of the cluster until the tests end, or until the function that it returns is called.
func (c *cluster) start(name string, args ...string) (stop func()) {
	c.t.Helper()
	return c.startProgram(filepath.Join(c.built, "bin", name), name, args...)
}

// startProgram is the same for any program, whose output is NAME.log.
func (c *cluster) startProgram(program, name string, args ...string) (stop func()) {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	require.NoError(c.t, err)
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	require.NoError(c.t, cmd.Start())
	stop = sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait(); log.Close() })
	c.t.Cleanup(stop)
	return stop
}

// startControlPlane returns when the API server is ready.
func (c *cluster) startControlPlane() {
	c.t.Helper()
	began := time.Now()
	c.ca.issue(c.t, "apiserver", pkix.Name{CommonName: "kube-apiserver"}, controlAddress, serviceAddress, "127.0.0.1")
	c.ca.issue(c.t, "registry", pkix.Name{CommonName: "registry"}, controlAddress)
	c.ca.issue(c.t, "kubelet-client", pkix.Name{CommonName: "apiserver", Organization: []string{"system:masters"}})
	c.ca.issue(c.t, "accounts", pkix.Name{CommonName: "service accounts"})
	c.admin = c.ca.client(c.t, "admin", "admin", "default", "system:masters")
	manager := c.ca.client(c.t, "manager", "system:kube-controller-manager", "default")
	scheduler := c.ca.client(c.t, "scheduler", "system:kube-scheduler", "default")

	c.start("registry", registry, "registry.crt", "registry.key")
	c.start("etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn")
	c.stopServer = c.start("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=443",
		"--advertise-address="+controlAddress, "--service-cluster-ip-range="+serviceNetwork,
		"--tls-cert-file=apiserver.crt", "--tls-private-key-file=apiserver.key", "--client-ca-file=ca.crt",
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-client-certificate=kubelet-client.crt", "--kubelet-client-key=kubelet-client.key",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=accounts.crt",
		"--service-account-signing-key-file=accounts.key", "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		// For probe-timeouts.yaml.
		"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true")
	c.wait("the API server", func() error {
		_, err := c.try(c.admin, "kubectl get --raw /readyz")
		return err
	})
	c.start("kube-controller-manager", "--kubeconfig="+manager, "--use-service-account-credentials",
		"--service-account-private-key-file=accounts.key", "--root-ca-file=ca.crt", "--leader-elect=false")
	c.start("kube-scheduler", "--kubeconfig="+scheduler, "--leader-elect=false")
	c.wait("the policy on probes", func() error {
		_, err := c.try(c.admin, "kubectl apply -f "+c.root+"/test/systems/k8s/probe-timeouts.yaml")
		return err
	})
	c.t.Logf("control plane after %v", time.Since(began).Round(100*time.Millisecond))
}

// startNode boots the virtual machine and waits until the node is ready.
func (c *cluster) startNode(kernel string) {
	c.t.Helper()
	kubeconfig := c.ca.client(c.t, "kubelet", "system:node:"+nodeName, "default", "system:nodes")
	environment := strings.Join([]string{
		"NODE_ADDRESS=" + nodeAddress, "NODE_NAME=" + nodeName, "GATEWAY=" + controlAddress, "REGISTRY=" + registry,
		"POD_NETWORK=" + podNetwork, "KUBECONFIG=" + kubeconfig, "CA=" + filepath.Join(c.dir, "ca.crt"),
		"BUILT=" + c.built,
	}, " ")
	began := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	c.node = make(chan error, 1)
	shared := filepath.Join(c.dir, "node-"+filepath.Base(c.dir)) // virtiofsd needs a separate name
	require.NoError(c.t, os.MkdirAll(filepath.Join(shared, "commands"), 0o755))
	require.NoError(c.t, os.Symlink(filepath.Base(shared), filepath.Join(c.dir, "node")))
	go func() {
		result, err := vm.Boot(ctx, kernel, environment+" exec bash "+c.root+"/test/systems/k8s/node.sh",
			// To attach a probe, processors wait for each other a hundred times; one does not.
			vm.Options{Memory: "6G", Processors: 1, Tap: tap, Dir: shared})
		if err == nil {
			err = fmt.Errorf("the node ended with status %d: %s", result.Status, result.Stderr)
		}
		c.node <- err
	}()
	c.t.Cleanup(func() { stop(); <-c.node })
	c.wait("the node", func() error {
		_, err := c.try(c.admin, "kubectl wait --for=condition=Ready node/"+nodeName+" --timeout=5s")
		return err
	})
	c.t.Logf("node ready %v after it was started", time.Since(began).Round(100*time.Millisecond))
}

// wait polls until the condition holds. It fails when the node has ended.
func (c *cluster) wait(what string, condition func() error) {
	c.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(200 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		select {
		case ended := <-c.node:
			c.node <- ended
			require.NoError(c.t, ended, what)
		default:
		}
		require.True(c.t, time.Now().Before(deadline), "%v are not enough for %s: %v", waitLimit, what, err)
	}
}

// command returns a bash command, with a user's programs, in a copy of the repository.
func (c *cluster) command(kubeconfig, text string) *exec.Cmd {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", text)
	cmd.Dir = c.dir // has the examples, and links to the rest: useExamples
	path := filepath.Join(c.built, "bin") + ":" + filepath.Join(c.root, "build/tools") + ":" + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+path, "HOME="+c.dir,
		"SSL_CERT_FILE="+filepath.Join(c.dir, "ca.crt"))
	return cmd
}

func (c *cluster) try(kubeconfig, text string) (string, error) {
	cmd := c.command(kubeconfig, text)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", text, err, stderr.String())
	}
	return string(out), err
}

// do runs a command as the administrator, and returns its output.
func (c *cluster) do(t *testing.T, text string) string {
	t.Helper()
	out, err := c.try(c.admin, text)
	require.NoError(t, err, "%s", out)
	return out
}

// onNode runs a command of bash in the virtual machine.
func (c *cluster) onNode(t *testing.T, text string) string {
	t.Helper()
	file, err := os.CreateTemp(filepath.Join(c.dir, "node/commands"), "*.new")
	require.NoError(t, err)
	_, err = file.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	base := strings.TrimSuffix(file.Name(), ".new")
	require.NoError(t, os.Rename(file.Name(), base+".sh"))
	var status []byte
	c.wait("a command on the node", func() (err error) {
		status, err = os.ReadFile(base + ".status")
		return err
	})
	out, err := os.ReadFile(base + ".out")
	require.NoError(t, err)
	require.Equal(t, "0", strings.TrimSpace(string(status)), "%s: %s", text, out)
	return string(out)
}
