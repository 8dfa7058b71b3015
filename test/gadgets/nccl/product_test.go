// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// igGPU runs the product on processes, and passes each line of JSON to see until that
// returns true. It returns the log.
func igGPU(t *testing.T, pids []int, see func(line []byte, logged string) bool) string {
	t.Helper()
	return igGPUWith(t, pids, "json", see)
}

func igGPUWith(t *testing.T, pids []int, output string, see func(line []byte, logged string) bool) string {
	t.Helper()
	bpftest.RequireRoot(t)
	program, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	_, err = os.Stat(program)
	require.NoError(t, err, "run make build")
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(pids), "[]"), " ", ",")
	cmd := exec.Command(program, "run", "nccl_trace", "--host", "--pid", list, "-o", output)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var mu sync.Mutex
	var logged bytes.Buffer
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			mu.Lock()
			logged.WriteString(lines.Text() + "\n")
			mu.Unlock()
		}
	}()
	log := func() string {
		mu.Lock()
		defer mu.Unlock()
		return logged.String()
	}
	late := time.AfterFunc(waitLimit, func() { cmd.Process.Kill() })
	defer late.Stop()
	// Tables without rows are not printed, so the log is checked meanwhile.
	lines := make(chan []byte)
	done := make(chan struct{})
	go func() {
		defer close(lines)
		for reader := bufio.NewReaderSize(tables.Reader(stdout), 1<<20); ; {
			line, err := reader.ReadBytes('\n')
			if err != nil {
				return
			}
			select {
			case lines <- line:
			case <-done:
			}
		}
	}()
	enough := false
	for open := true; open && !enough; {
		var line []byte
		select {
		case line, open = <-lines:
		case <-time.After(100 * time.Millisecond):
		}
		enough = open && see(line, log())
	}
	close(done)
	cmd.Process.Signal(syscall.SIGINT)
	<-read
	cmd.Wait()
	require.True(t, enough, "not seen in %v; logged: %s", waitLimit, log())
	return log()
}

// TestProductReportsThousandsOfRanks: one process has more communicators than there is
// room for, created before attach: those that fit are reported, and that some do not is
// logged once.
func TestProductReportsThousandsOfRanks(t *testing.T) {
	const room = 2048 // of one container: MAX_COMMUNICATORS / 8
	pid := many(t, room+616)
	logged := igGPUWith(t, []int{pid}, "collectives:json,communicators:none,operations:none,peers:none,hangs:json,drops:json", func(line []byte, _ string) bool {
		return bytes.Count(line, []byte(`"rank":0`)) == room && bytes.Count(line, []byte(`"communicator":"0x`)) == room
	})
	require.Equal(t, 1, strings.Count(logged, "communicators_full"), "%s", logged)
}

// TestProductNamesLateRanks: the ranks of a job that runs already have their numbers, and
// one communicator.
func TestProductNamesLateRanks(t *testing.T) {
	pids := example(t, "train.py", "--step-ms", "20")
	igGPU(t, pids, func(line []byte, _ string) bool {
		var rows []struct {
			Communicator string
			Rank, Size   *int
		}
		if json.Unmarshal(line, &rows) != nil || len(rows) != len(pids) {
			return false
		}
		ranks := map[int]bool{}
		for _, r := range rows {
			if r.Rank == nil || r.Size == nil || r.Communicator == "" || r.Communicator != rows[0].Communicator || *r.Size != len(pids) {
				return false
			}
			ranks[*r.Rank] = true
		}
		return len(ranks) == len(pids) && ranks[0] && ranks[1] && ranks[2]
	})
}

// TestProductReportsAnInvalidLibrary: a file with NCCL's name and none of its functions.
func TestProductReportsAnInvalidLibrary(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "libnccl.so.2")
	b, err := os.ReadFile(libraries(t)["libcuda"])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(fake, b, 0o755))
	cmd := exec.Command("python3", "-c", "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); time.sleep(1000)", fake)
	p := subject.Start(t, cmd)
	p.Expect("ready")
	igGPU(t, []int{p.PID()}, func(_ []byte, logged string) bool {
		return strings.Contains(logged, fake+" is named like NCCL but exports none of its functions")
	})
}

// patched is the simulated library as another version, and without a function.
func patched(t *testing.T, version uint32, without string) string {
	t.Helper()
	b, err := os.ReadFile(libraries(t)["libnccl"])
	require.NoError(t, err)
	l, err := nccl.Inspect(bytes.NewReader(b), int64(len(b)), nil)
	require.NoError(t, err)
	// movl $VERSION,(%rdi) of ncclGetVersion.
	store := func(v uint32) []byte { return binary.LittleEndian.AppendUint32([]byte{0xc7, 0x07}, v) }
	require.Equal(t, 1, bytes.Count(b, store(uint32(l.Version))))
	b = bytes.Replace(b, store(uint32(l.Version)), store(version), 1)
	require.Positive(t, bytes.Count(b, []byte(without+"\x00")))
	other := []byte(without)
	other[len(other)-1] = 'X' // both names: one is the end of the other
	b = bytes.ReplaceAll(b, []byte(without+"\x00"), append(other, 0))
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	require.NoError(t, os.WriteFile(path, b, 0o755))
	return path
}

// TestProductReportsMissingFunctionsOfALibraryOnce: a version that is too new, without a function,
// in the ranks of a job; the rest works.
func TestProductReportsMissingFunctionsOfALibraryOnce(t *testing.T) {
	library := patched(t, 23100, "ncclAlltoAll")
	begin := func() {
		cmd := exec.Command("python3", "../../../examples/collectives/train.py", "--step-ms", "20", "--libcuda", libraries(t)["libcuda"], "--libnccl", library)
		cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		})
	}
	const missing, unknown = " (NCCL 2.31.0) has no ncclAlltoAll; its other ", " (NCCL 2.31.0): communicators created before attach will have no identity: " +
		"layout of communicators is not known: only from 2.18.0 to 2.30.7. Later ones are traced; those of ncclCommSplit are judged only if"
	begun, tables := false, 0
	// Once it is attached to another process, it searches for the ranks, too.
	other := subject.Start(t, exec.Command("python3", "-c", "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); time.sleep(1000)",
		libraries(t)["libnccl"]))
	other.Expect("ready")
	logged := igGPUWith(t, []int{os.Getpid(), other.PID()}, "collectives:json,communicators:none,operations:none,peers:none,hangs:none,attachments:json", func(line []byte, logged string) bool {
		if !begun && bytes.Contains(line, []byte(`"status":"attached"`)) {
			begun = true
			begin() // it is made from now on
		}
		var rows []struct {
			Communicator string
			Rank, Issued *int
			Late         bool
		}
		if json.Unmarshal(line, &rows) != nil || len(rows) != 3 {
			return false
		}
		for _, r := range rows {
			if r.Communicator != rows[0].Communicator || r.Late || r.Issued == nil || *r.Issued < 10 {
				return false
			}
		}
		tables++
		return tables > 5 && strings.Contains(logged, missing) && strings.Contains(logged, unknown)
	})
	require.Equal(t, 1, strings.Count(logged, missing), "%s", logged)
	require.Equal(t, 1, strings.Count(logged, unknown), "%s", logged)
	require.NotContains(t, logged, "level=error")
}
