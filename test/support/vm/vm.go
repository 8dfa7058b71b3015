// SPDX-License-Identifier: Apache-2.0

// Package vm runs a command on another kernel: in a virtual machine that QEMU emulates in
// software, so that no host has to support virtualization. The virtual machine sees this
// machine's files, at the same paths, and its writes are discarded; it has no network,
// except that of Options. Kernels are Debian's; see fetch.sh.
//
// A machine of another processor, arm64, has Debian's files for that, and of this
// machine's it sees the repository.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Result of a command.
type Result struct {
	Release        string // as uname -r says
	Status         int    // the command's exit status
	Stdout, Stderr string
	Wall           time.Duration // of the whole machine, boot included
}

const (
	// processors: one for the program under test, one for its workload.
	processors = 2
	// memory is that of ig-gpu, the workload and all files that they write; 1 GiB is
	// too little for ig's mappings.
	memory = "3G"
	// attempts: QEMU's software emulation kills a guest now and then. Only a
	// machine that died without a result is started again, never a failed
	// command.
	attempts = 3
	// model has the features that Debian's kernels and Go programs need: emulated AVX
	// is slower than none. Linux 6.18 and newer need cmpxchg16b (cx16): without it
	// bpf_task_storage_get() has no memory, as kmalloc_nolock() never gives any.
	model = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand,+lahf-lm"
	// With it, 6.12 died of a double fault at each third boot on QEMU 7.2.
	withoutCx16 = "6.12."
	// lockup ends a machine one of whose processors has been in the kernel for twice
	// as many seconds.
	lockup = "softlockup_panic=1 watchdog_thresh=60 "
	// arm64Model has pointer authentication, by a hash that is cheap to emulate.
	// Other features are slow, or unknown to Linux 6.1.
	arm64Model = "max,pauth-impdef=on,sve=off,lpa2=off"
)

// oneProcessor are kernels that have one only. With two, 6.12 panicked while raw_syscalls
// were patched in (syscall_trace_enter), as the other one had the old code still
// translated, and 5.10 stayed in a jump that had been patched, on both
// (syscall_exit_to_user_mode).
var oneProcessor = []string{"5.10.", "6.12."}

// Options of a machine; all may be empty.
type Options struct {
	Memory     string
	Processors int
	Tap        string // a network device of this machine, the guest's eth0
	Dir        string // a directory for what the guest has in /run/vm; not removed
}

// ErrNoResult means that the machine died by itself.
var ErrNoResult = errors.New("the virtual machine ended without a result")

// Run runs a command of bash on a kernel of Debian ("6.1", "newest", "arm64-6.1"), in the
// current directory and with the current PATH. It fails the test if the machine gives no
// result within the limit, or cannot run here. The caller checks
// the exit status and, by died, the output of a command in a machine that gave no result.
func Run(t testing.TB, kernel, command string, limit time.Duration, died func(Result)) Result {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root to hand all files to the virtual machine; runs as user %d", os.Geteuid())
	}
	dir, err := fetch(kernel)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Fatalf("no virtual machine with Linux %s can run here: %v. What says why is above; leave this kernel out of KERNELS", kernel, err)
	}
	if err != nil {
		t.Fatalf("prepare Linux %s: %v", kernel, err)
	}
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		result, err := boot(ctx, dir, command, Options{})
		cancel()
		if err == nil {
			return result
		}
		if !errors.Is(err, ErrNoResult) || attempt == attempts {
			if died != nil {
				died(result)
			}
			t.Fatalf("Linux %s, attempt %d: %v", kernel, attempt, err)
		}
		t.Logf("Linux %s, attempt %d: %v", kernel, attempt, err)
	}
}

// Boot runs a command like Run, until the context ends, and returns errors to the caller:
// ErrNoResult, and those of the context.
func Boot(ctx context.Context, kernel, command string, o Options) (Result, error) {
	dir, err := fetch(kernel)
	if err != nil {
		return Result{}, fmt.Errorf("prepare Linux %s: %w", kernel, err)
	}
	return boot(ctx, dir, command, o)
}

// fetch runs fetch.sh and returns the directory of the kernel. Its error ends with the
// last line of the script's output.
func fetch(kernel string) (dir string, err error) {
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command(filepath.Join(filepath.Dir(here), "fetch.sh"), kernel)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return filepath.Join(filepath.Dir(here), "../../../build/vm", kernel), nil
}

// boot starts one machine and waits for its end.
func boot(ctx context.Context, dir, command string, o Options) (r Result, err error) {
	release, err := os.ReadFile(filepath.Join(dir, "release"))
	if err != nil {
		return r, err
	}
	r.Release = strings.TrimSpace(string(release))
	work := o.Dir
	if work == "" {
		if work, err = os.MkdirTemp(dir, "run-"); err != nil {
			return r, err
		}
		defer os.RemoveAll(work)
	}
	shares, prepare := []share{{"host", "/"}, {"vm", work}}, ""
	m, err := machineOf(r.Release)
	if err != nil {
		return r, err
	}
	if m.arm64 {
		repository := filepath.Join(dir, "../../..")
		shares = []share{{"host", filepath.Join(dir, "../arm64-root")}, {"vm", work}, {"repository", repository}}
		prepare = fmt.Sprintf("mkdir -p %[1]s && mount -t virtiofs -o ro repository %[1]s", quote(repository))
	}
	if err := script(work, prepare, command); err != nil {
		return r, err
	}

	began := time.Now()
	args := arguments(dir, m, o)
	for _, share := range shares {
		stop, err := serve(work, share.tag, share.path)
		if err != nil {
			return r, err
		}
		defer stop()
		args = append(args, "-chardev", "socket,id="+share.tag+",path="+socketName(work, share.tag),
			"-device", "vhost-user-fs-pci,chardev="+share.tag+",tag="+share.tag)
	}
	qemu := exec.CommandContext(ctx, m.qemu, args...)
	qemu.Dir = work // the sockets' paths are relative: they may have 107 bytes
	var said bytes.Buffer
	qemu.Stdout, qemu.Stderr = &said, &said
	if err := qemu.Start(); err != nil {
		return r, fmt.Errorf("start QEMU: %w", err)
	}
	ended := make(chan struct{})
	go suspend(work, qemu.Process, ended)
	err = qemu.Wait()
	close(ended)
	r.Wall = time.Since(began)
	if _, missing := os.Stat(filepath.Join(work, "status")); missing != nil {
		console, _ := os.ReadFile(filepath.Join(work, "console"))
		stdout, _ := os.ReadFile(filepath.Join(work, "stdout"))
		stderr, _ := os.ReadFile(filepath.Join(work, "stderr"))
		r.Stdout, r.Stderr = string(stdout), string(stderr)
		cause := ErrNoResult
		if ctx.Err() != nil {
			cause = ctx.Err() // as slow, or as stuck, the next time
		}
		return r, fmt.Errorf("%w after %v (%w)\nQEMU: %s\nconsole: %s\nstderr: %s",
			cause, r.Wall.Round(time.Second), err, said.Bytes(), tail(console), tail(stderr))
	}
	return r, r.read(work)
}

// arguments are those of QEMU, without the shared directories.
func arguments(dir string, m machine, o Options) []string {
	memory := cmp.Or(o.Memory, memory)
	args := []string{
		"-nodefaults", "-no-reboot", "-display", "none", "-serial", "file:console",
		"-accel", "tcg,thread=multi", "-machine", m.board + ",memory-backend=memory", "-cpu", m.cpu,
		"-smp", strconv.Itoa(cmp.Or(o.Processors, m.processors, processors)), "-m", memory,
		// Shared, for virtiofsd reads and writes the guest's memory.
		"-object", "memory-backend-memfd,id=memory,share=on,size=" + memory,
		"-kernel", filepath.Join(dir, "vmlinuz"), "-initrd", filepath.Join(dir, "initramfs"),
		// Each uprobe waits for a grace period of RCU, which takes up to seconds
		// where the virtual processors have to wait for real ones.
		"-append", "loglevel=4 oops=panic panic=-1 " + lockup + "rcupdate.rcu_expedited=1 " + m.kernelArgs,
	}
	if o.Tap != "" {
		args = append(args, "-netdev", "tap,id=net,script=no,downscript=no,ifname="+o.Tap,
			"-device", "virtio-net-pci,netdev=net,romfile=")
	}
	return args
}

// read reads what the command left: its exit status and its output.
func (r *Result) read(work string) error {
	status, err := os.ReadFile(filepath.Join(work, "status"))
	if err != nil {
		return fmt.Errorf("read the exit status: %w", err)
	}
	if r.Status, err = strconv.Atoi(strings.TrimSpace(string(status))); err != nil {
		return fmt.Errorf("read the exit status: %w", err)
	}
	for name, to := range map[string]*string{"stdout": &r.Stdout, "stderr": &r.Stderr} {
		text, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			return fmt.Errorf("read the output: %w", err)
		}
		*to = string(text)
	}
	return nil
}

// share is a directory that the machine mounts by its tag.
type share struct{ tag, path string }

// machine has the differences between architectures.
type machine struct {
	qemu, board, cpu string
	kernelArgs       string
	arm64            bool
	processors       int // 0: as many as usual
}

func machineOf(release string) (machine, error) {
	if strings.HasSuffix(release, "-arm64") {
		return machine{qemu: "qemu-system-aarch64", board: "virt", cpu: arm64Model,
			kernelArgs: "console=ttyAMA0", arm64: true}, nil
	}
	m := machine{qemu: "qemu-system-x86_64", board: "q35", cpu: model + ",+cx16"}
	if strings.HasPrefix(release, withoutCx16) {
		m.cpu = model + ",-cx16"
	}
	if slices.ContainsFunc(oneProcessor, func(of string) bool { return strings.HasPrefix(release, of) }) {
		m.processors = 1
	}
	frequency, err := timestampKHz()
	// An emulated clock runs slow under load, and the time stamp counter does not:
	// measured against it, it seems up to five times as fast. Mitigations cost time,
	// and nothing here needs them.
	m.kernelArgs = "console=ttyS0 mitigations=off tsc_early_khz=" + frequency
	return m, err
}

// script writes the script that the machine runs.
func script(work, prepare, command string) error {
	_, here, _, _ := runtime.Caller(0)
	main, err := os.ReadFile(filepath.Join(filepath.Dir(here), "main.sh"))
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "main"), main, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("%s\nexport PATH=%s\ncd %s\n%s\n", prepare, quote(os.Getenv("PATH")), quote(cwd), command)
	return os.WriteFile(filepath.Join(work, "command"), []byte(text), 0o644)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// socketName is unique also without its directory: virtiofsd locks a file of that
// name in /run.
func socketName(work, tag string) string { return tag + "-" + filepath.Base(work) }

// serve hands a directory to the machine, until stop.
func serve(work, tag, path string) (stop func(), err error) {
	socket := socketName(work, tag)
	cache := "auto"
	if tag == "host" {
		// Else the guest forgets a file's pages whenever a process opens it, also
		// those that others have mapped.
		cache = "always"
	}
	// It keeps a file open for each that the guest knows of, so it may have as
	// many as we may have at most; by itself it would try to raise the limit, and fail.
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return nil, err
	}
	args := []string{"--socket-path=" + socket, fmt.Sprintf("--rlimit-nofile=%d", files.Max)}
	// Its other sandbox cannot share "/" itself.
	cmd := exec.Command("/usr/lib/qemu/virtiofsd", append(args, "-o", "source="+path+",cache="+cache+",sandbox=chroot")...)
	if _, err := os.Stat(cmd.Path); err != nil { // QEMU 8 and newer
		cmd = exec.Command("/usr/libexec/virtiofsd", append(args, "--shared-dir="+path, "--cache="+cache, "--sandbox=chroot", "--seccomp=none")...)
	} else if cmd.Env, err = withoutSeccomp(work); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, &said, &said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start virtiofsd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() {
		cmd.Process.Kill()
		<-ended
		os.Remove("/run/virtiofsd/" + socket + ".pid")
	}
	for {
		if _, err := os.Stat(filepath.Join(work, socket)); err == nil {
			return stop, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("virtiofsd for %s: %w: %s", path, err, said.Bytes())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// withoutSeccomp is an environment in which virtiofsd of QEMU 7 sets no filter of system
// calls, for which it has no option. The kernel compiles a filter as it does eBPF, and a
// machine where it does not get to that is one reason to test in a virtual one.
func withoutSeccomp(work string) ([]string, error) {
	library := filepath.Join(work, "noseccomp.so")
	cc := exec.Command("cc", "-shared", "-x", "c", "-o", library, "-")
	cc.Stdin = strings.NewReader("int seccomp_load(void *filter) { return 0; }\n")
	if said, err := cc.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile what keeps virtiofsd from filtering system calls: %w: %s", err, said)
	}
	return append(os.Environ(), "LD_PRELOAD="+library), nil
}

// timestampKHz is the frequency of the time stamp counter, which the guest reads
// directly: the kernel derives bogomips from it, two for each MHz.
func timestampKHz() (string, error) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "bogomips" {
			continue
		}
		mips, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return "", fmt.Errorf("read bogomips: %w", err)
		}
		return strconv.Itoa(int(mips * 1000 / 2)), nil
	}
	return "", errors.New("no bogomips in /proc/cpuinfo")
}

func tail(b []byte) []byte { return b[max(0, len(b)-4000):] }
