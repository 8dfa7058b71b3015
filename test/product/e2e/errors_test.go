// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// gadget is a command line for which the output does not matter.
func gadget(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(program(t), append([]string{"run", "cuda_alloc", "--host", "-o", "json"}, args...)...)
}

// inShell runs commands, then the gadget by exec: in its own namespaces, or with other
// rights.
func inShell(t *testing.T, before, wrapper string, args ...string) *exec.Cmd {
	t.Helper()
	line := before + wrapper + ` "$0" run cuda_alloc --host -o json "$@"`
	return exec.Command("unshare", append([]string{"--mount", "sh", "-ec", line, program(t)}, args...)...)
}

func TestProcessThatDoesNotExistIsAnError(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t)
	w.End()
	text := fails(t, gadget(t, "--pid", fmt.Sprint(w.PID())))
	require.Contains(t, text, strconv.Itoa(w.PID()))
	require.Contains(t, text, "process")

	for _, pid := range []string{"0", "-1", "python", "1,,2", "99999999999"} {
		text := fails(t, gadget(t, "--pid="+pid))
		require.Contains(t, text, "is not a process id", pid)
	}
}

// TestPIDNeedsNoHost: the error is about the process, and not about a flag that was added.
func TestPIDNeedsNoHost(t *testing.T) {
	t.Parallel()
	cmd := gadget(t, "--pid=python")
	at := slices.Index(cmd.Args, "--host")
	require.Positive(t, at)
	cmd.Args = slices.Delete(cmd.Args, at, at+1)
	require.Contains(t, fails(t, cmd), "is not a process id")
	cmd = gadget(t, "--pid", "")
	require.Contains(t, fails(t, cmd), "--pid is empty")
}

func TestNoRootIsAnError(t *testing.T) {
	t.Parallel()
	cmd := gadget(t)
	file, err := os.Open(cmd.Path)
	require.NoError(t, err)
	defer file.Close()
	// By descriptor: not all users may search the directories of the path.
	cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{file}
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	require.Contains(t, fails(t, cmd), "needs root")
}

func TestKernelWithoutBTFIsAnError(t *testing.T) {
	t.Parallel()
	text := fails(t, inShell(t, "mount -t tmpfs none /sys/kernel/btf; ", "exec"))
	require.Contains(t, text, "/sys/kernel/btf/vmlinux is missing")
}

// Since Linux 6.15 a process that may load eBPF (CAP_PERFMON) may read all mappings, so
// the denial is staged: a file without read permission, and root without the capability
// to override that.
func TestUnreadableProcessIsAnErrorOrCounted(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t)
	secret := filepath.Join(t.TempDir(), "maps")
	require.NoError(t, os.WriteFile(secret, nil, 0o000))
	require.NoError(t, os.Chown(secret, 65534, 65534))
	before := fmt.Sprintf("mount --bind %s /proc/%d/maps; ", secret, w.PID())
	const limited = "exec setpriv --bounding-set=-sys_ptrace,-dac_override,-dac_read_search"

	text := fails(t, inShell(t, before, limited, "--pid", fmt.Sprint(w.PID())))
	require.Contains(t, text, strconv.Itoa(w.PID()))
	require.Contains(t, text, "permission denied")

	r := launch(t, inShell(t, before, limited))
	var unreadable []string
	r.wait("the warning that nothing is attached, or another process of this machine is traced", func() bool {
		unreadable = regexp.MustCompile(`(\d+) unreadable`).FindStringSubmatch(r.stderr.String())
		return unreadable != nil || len(r.attachments) > 0
	})
	if unreadable != nil {
		require.NotEqual(t, "0", unreadable[1])
	}
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
}

// badELF are files that a process can present as its libcuda.so.1.
func badELF(t *testing.T) map[string]string {
	t.Helper()
	good, err := os.ReadFile(simulated.Driver(t))
	require.NoError(t, err)
	files := map[string]string{}
	write := func(name string, content []byte) string {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		files[name] = filepath.Join(dir, "libcuda.so.1")
		require.NoError(t, os.WriteFile(files[name], content, 0o755))
		return files[name]
	}
	write("truncated", good[:5000])
	write("text", []byte("#!/bin/sh\necho not a library\n"))

	// Each hash chain leads to itself.
	cyclic := append([]byte(nil), good...)
	headers := binary.LittleEndian.Uint64(cyclic[0x20:])
	for i := range int(binary.LittleEndian.Uint16(cyclic[0x38:])) {
		h := cyclic[int(headers)+56*i:]
		if binary.LittleEndian.Uint32(h) == 2 { // PT_DYNAMIC
			dynamic := cyclic[binary.LittleEndian.Uint64(h[8:]):]
			for ; binary.LittleEndian.Uint64(dynamic) != 0; dynamic = dynamic[16:] {
				if binary.LittleEndian.Uint64(dynamic) == 4 { // DT_HASH
					hash := cyclic[binary.LittleEndian.Uint64(dynamic[8:]):]
					buckets, chains := binary.LittleEndian.Uint32(hash), binary.LittleEndian.Uint32(hash[4:])
					for c := range chains {
						binary.LittleEndian.PutUint32(hash[8+4*buckets+4*c:], c)
					}
				}
			}
		}
	}
	write("cyclic", cyclic)

	// A header that claims 4 GiB for everything, in a sparse file of 4 GiB.
	sparse := append([]byte(nil), good[:4096]...)
	for i := range int(binary.LittleEndian.Uint16(sparse[0x38:])) {
		h := sparse[int(headers)+56*i:]
		binary.LittleEndian.PutUint64(h[32:], 4<<30)
		binary.LittleEndian.PutUint64(h[40:], 4<<30)
	}
	require.NoError(t, os.Truncate(write("sparse", sparse), 4<<30))
	return files
}

// peakMemory reads the peak memory of a process.
func peakMemory(t *testing.T, pid int) (mib int) {
	t.Helper()
	most, err := usage.Memory(pid, "VmHWM")
	require.NoError(t, err)
	return int(most >> 20)
}

func TestBadLibrariesAreCountedAndHarmless(t *testing.T) {
	t.Parallel()
	files := badELF(t)
	w := subject.StartSteps(t)
	for _, path := range files {
		w.Do("map %s", path)
	}
	began := time.Now()
	r := start(t, "--pid", fmt.Sprint(w.PID()))
	r.wait("a row for each file", func() bool { return len(r.attachments) == len(files) })
	t.Logf("checked after %v", time.Since(began).Round(time.Millisecond))
	for _, a := range r.attachments {
		name := filepath.Base(filepath.Dir(a.Path))
		t.Logf("%s: %s %s, %d symbols", name, a.Status, a.Error, a.Symbols)
		require.Equal(t, files[name], a.Path)
		if name == "cyclic" && a.Status == "attached" {
			continue // the symbol table is whole: the hash table is only one way to it
		}
		require.NotEqual(t, "attached", a.Status)
		require.NotEmpty(t, a.Error)
	}

	// One bad library does not keep a good one from being traced.
	w.Load()
	r.wait("the good library", func() bool {
		return len(r.attachments) == len(files)+1 && r.attachments[len(files)].Status == "attached"
	})
	w.Do("alloc weights 1 4096")
	r.waitRows("rows of the process", w.PID(), allocs(1))
	require.Less(t, peakMemory(t, r.cmd.Process.Pid), 400)
	code, _ := r.interrupt()
	require.Zero(t, code)
	requireExact(t, w, r.last(w.PID()))
}

func TestTheWarningIsOnlyAboutBadLibraries(t *testing.T) {
	t.Parallel()
	path := badELF(t)["truncated"]
	w := subject.StartSteps(t)
	w.Do("map %s", path)
	r := start(t, "--pid", fmt.Sprint(w.PID()), "--timeout", "14")
	require.Zero(t, r.exit())
	require.Contains(t, r.errors(), "nothing attached")
	require.Contains(t, r.errors(), path)
	require.Equal(t, 1, strings.Count(r.errors(), "\n"), r.errors())
}

// Without --host the gadget watches containers.
func TestMachineWithoutContainersIsAnError(t *testing.T) {
	t.Parallel()
	for _, socket := range []string{"docker.sock", "containerd/containerd.sock", "crio/crio.sock", "podman/podman.sock"} {
		if _, err := os.Stat("/run/" + socket); err == nil {
			t.Skipf("a container runtime listens at /run/%s", socket)
		}
	}
	text := fails(t, exec.Command(program(t), "run", "cuda_alloc", "--timeout", "1"))
	require.Contains(t, text, "use --host")
	require.Contains(t, text, "SELinux")
}

func TestMistakesInFlagsAreOneLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--scan-interval", "soon"}, "scan-interval"},
		{[]string{"--attach-mode", "magic"}, "attach-mode"},
		{[]string{"--forget-exited", "1s"}, "at least 10s"},
		{[]string{"--no-such-flag"}, "no-such-flag"},
		{[]string{"--flamegraph-base", "/nowhere"}, "flamegraph-out"},
		{[]string{"--timeout", "soon"}, "timeout"},
	} {
		require.Contains(t, fails(t, gadget(t, c.args...)), c.want, c.args)
	}
}
