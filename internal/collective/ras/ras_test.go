// SPDX-License-Identifier: Apache-2.0

package ras

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks"
)

// counts of operations as NCCL names them.
func counts(broadcast, allReduce int) string {
	return fmt.Sprintf(`{"Broadcast": %d, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": %d, "SendRecv": 9, "Send": 1, "Recv": 2}`, broadcast, allReduce)
}

func rankText(rank, pid int, counts string) string {
	return fmt.Sprintf(`{"rank": %d, "host": "10.0.0.1", "pid": %d, "cuda_dev": 0, "nvml_dev": 0, "status": {"init_state": 0,
		"async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false}, "collective_counts": %s}`, rank, pid, counts)
}

func statusText(missing string, ranks ...string) string {
	return fmt.Sprintf(`{"nccl_version": "2.29.7", "cuda_runtime_version": 13000, "communicators_count": 1, "communicators": [
		{"hash": "0xabc", "secondary_hash": "0x1:0x2", "size": 3, "ranks_count": %d, "missing_ranks_count": 0, "ranks": [%s], "missing_ranks": [%s]}],
		"ras": {"collection_time_sec": 0.001, "timeouts_count": 0}}`, len(ranks), strings.Join(ranks, ","), missing)
}

// serve is a RAS that answers commands according to the map.
func serve(t *testing.T, answers map[string]string) netip.AddrPort {
	t.Helper()
	return simranks.ServeRAS(t, func(command string) string {
		if answer, ok := answers[command]; ok {
			return answer
		}
		return "ERROR: Unknown command " + command + "\n"
	})
}

func nccl(status string) map[string]string {
	return map[string]string{"CLIENT PROTOCOL 2": "SERVER PROTOCOL 2\n", "TIMEOUT 3": "OK\n", "SET FORMAT json": "OK\n", "STATUS": status}
}

func query(t *testing.T, ctx context.Context, at netip.AddrPort) (*Status, error) {
	t.Helper()
	c, err := Dial(ctx, "/proc", uint32(os.Getpid()), at)
	require.NoError(t, err)
	return Query(ctx, c)
}

func TestStatusIsRead(t *testing.T) {
	missing := `{"rank": 2, "host": "10.0.0.2", "pid": 12, "cuda_dev": 0, "nvml_dev": 0, "status": {"unresponsive": true, "considered_dead": false}}`
	s, err := query(t, t.Context(), serve(t, nccl(statusText(missing, rankText(0, 10, counts(1, 5)), rankText(1, 11, counts(1, 5))))))
	require.NoError(t, err)
	require.Equal(t, "2.29.7", s.Version)
	require.Len(t, s.Communicators, 1)
	c := s.Communicators[0]
	require.EqualValues(t, 6, c.Ranks[1].issued(), "sends and receives are not numbered with collectives")
	require.Equal(t, 12, c.Missing[0].PID)
	require.True(t, c.Missing[0].Status.Unresponsive)
}

// TestAMissingRankOf2_28_9IsRead: its answer is no JSON, as a real one showed.
func TestAMissingRankOf2_28_9IsRead(t *testing.T) {
	missing := "{\n  \"rank\": 1,\n  \"host\": \"127.0.0.1\",\n  \"pid\": 30547,\n  \"cuda_dev\": 1,\n  \"nvml_dev\": 1\n" +
		"  \"status\": {\n    \"unresponsive\": true,\n    \"considered_dead\": false\n  }\n}"
	s, err := Parse([]byte(statusText(missing, rankText(0, 10, counts(1, 5)))))
	require.NoError(t, err)
	require.Len(t, s.Communicators, 1)
	require.Len(t, s.Communicators[0].Ranks, 1)
	require.Len(t, s.Communicators[0].Missing, 1)
	m := s.Communicators[0].Missing[0]
	require.Equal(t, 30547, m.PID)
	require.True(t, m.Status.Unresponsive)
}

func TestOtherServicesAreRefused(t *testing.T) {
	old := nccl("Job summary\n")
	delete(old, "SET FORMAT json")
	_, err := query(t, t.Context(), serve(t, old))
	require.ErrorIs(t, err, ErrOld)
	_, err = query(t, t.Context(), serve(t, map[string]string{"CLIENT PROTOCOL 2": "HTTP/1.1 400 Bad Request\r\n"}))
	require.ErrorIs(t, err, ErrNotRAS)
	_, err = query(t, t.Context(), serve(t, map[string]string{"CLIENT PROTOCOL 2": "SERVER PROTOCOL 2\n", "TIMEOUT 3": "\x1b[2J\n"}))
	require.ErrorIs(t, err, ErrNotRAS)
	_, err = query(t, t.Context(), serve(t, nccl("no JSON")))
	require.ErrorContains(t, err, "read the status")
}

// TestHostileAnswersAreBounded: a line without an end, a status without one, and silence.
func TestHostileAnswersAreBounded(t *testing.T) {
	_, err := query(t, t.Context(), serve(t, map[string]string{"CLIENT PROTOCOL 2": strings.Repeat("x", 1<<20)}))
	require.ErrorIs(t, err, bufio.ErrBufferFull)
	_, err = query(t, t.Context(), serve(t, nccl(strings.Repeat(" ", maxAnswer+2))))
	require.ErrorContains(t, err, "more than 16 MiB")
	start := time.Now()
	_, err = query(t, t.Context(), serve(t, map[string]string{"CLIENT PROTOCOL 2": ""}))
	require.ErrorIs(t, err, ErrSilent, "it never answers")
	require.Less(t, time.Since(start), limit/2)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = query(t, ctx, serve(t, map[string]string{"CLIENT PROTOCOL 2": ""}))
	require.Error(t, err)
}

func TestAddressIsThatOfTheEnvironment(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "127.0.0.1:28028",
		"NCCL_RAS_ADDR=localhost:4000":        "127.0.0.1:4000",
		"NCCL_RAS_ADDR=127.0.0.2:4000":        "127.0.0.2:4000",
		"NCCL_RAS_ADDR=0.0.0.0:4000":          "127.0.0.1:4000",
		"NCCL_RAS_ADDR=[::1]:4000":            "[::1]:4000",
		"A=1\x00NCCL_RAS_ADDR=localhost:5000": "127.0.0.1:5000",
	} {
		at, err := address([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, at.String(), text)
	}
	for _, text := range []string{"10.0.0.1:4000", "example.com:4000", "localhost:22", "localhost:http", "localhost", "127.0.0.1:99999", "127.0.0.1:-1"} {
		_, err := address([]byte("NCCL_RAS_ADDR=" + text))
		require.ErrorIs(t, err, ErrElsewhere, text)
	}
	_, err := address([]byte("NCCL_RAS_ENABLE=0\x00"))
	require.ErrorIs(t, err, ErrOff)
}

// A process that sets a title, as vLLM's workers do, overwrites its environment with zeros.
func TestAddressOfAWorkerIsThatOfItsParent(t *testing.T) {
	procfs := t.TempDir()
	for name, text := range map[string]string{
		"1/environ": "NCCL_RAS_ADDR=localhost:4000\x00", "1/stat": "1 (serve) S 0 1 1\n",
		"2/environ": strings.Repeat("\x00", 64), "2/stat": "2 (VLLM::Worker) S 1 1 1\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(procfs, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(procfs, name), []byte(text), 0o600))
	}
	at, err := AddressOf(procfs, 2)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:4000", at.String())
}

// TestDialGoesWhereTheProcessIs: in its own network namespace the same address leads
// elsewhere.
func TestDialGoesWhereTheProcessIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	const script = `
import fcntl, os, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1 | 64))  # SIOCSIFFLAGS: up, running
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen()
print(l.getsockname()[1], flush=True)
while True:
    c, _ = l.accept()
    c.sendall(b"inside\n")
`
	cmd := exec.Command("unshare", "-n", "python3", "-c", script)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	at, err := netip.ParseAddrPort("127.0.0.1:" + strings.TrimSpace(line))
	require.NoError(t, err)
	c, err := Dial(t.Context(), "/proc", uint32(cmd.Process.Pid), at)
	require.NoError(t, err)
	defer c.Close()
	said, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "inside\n", said)
	_, err = Dial(t.Context(), "/proc", uint32(os.Getpid()), at)
	require.Error(t, err, "our own namespace has no such service")
	// Our own threads have not changed their namespace.
	for range 32 {
		_, err := net.DialTimeout("tcp", at.String(), time.Second)
		require.Error(t, err)
	}
}

func parse(t *testing.T, text string) *Communicator {
	t.Helper()
	s, err := Parse([]byte(text))
	require.NoError(t, err)
	return &s.Communicators[0]
}

func TestOpinions(t *testing.T) {
	equal := statusText("", rankText(0, 10, counts(1, 5)), rankText(1, 11, counts(1, 5)), rankText(2, 12, counts(1, 5)))
	behind := statusText("", rankText(0, 10, counts(1, 5)), rankText(1, 11, counts(1, 3)), rankText(2, 12, counts(1, 5)))
	gone := statusText(`{"rank": 1, "host": "10.0.0.1", "pid": 11, "status": {"considered_dead": true}}`, rankText(0, 10, counts(1, 5)), rankText(2, 12, counts(1, 5)))
	for _, c := range []struct {
		status  string
		missing []int
		verdict string
		text    string
	}{
		{behind, []int{1}, "agrees", "rank 1 (10.0.0.1, pid 11) is 2 behind"},
		{behind, []int{2}, "disagrees", "rank 1 (10.0.0.1, pid 11) is 2 behind"},
		{behind, nil, "disagrees", "rank 1 (10.0.0.1, pid 11) is 2 behind"},
		{gone, []int{1}, "agrees", "rank 1 (10.0.0.1, pid 11) is considered dead"},
		{equal, []int{1}, "disagrees", "all 3 ranks answer and have issued the same"},
		{equal, nil, "agrees", "all 3 ranks answer and have issued the same"},
	} {
		require.Equal(t, Opinion{c.verdict, c.text}, parse(t, c.status).Judge(c.missing))
	}
	hostile := statusText(`{"rank": 1, "host": "\u001b[2J`+strings.Repeat("x", 1000)+`", "pid": 11}`, rankText(0, 10, counts(1, 5)))
	o := parse(t, hostile).Judge(nil)
	require.NotContains(t, o.Text, "\x1b")
	require.LessOrEqual(t, len(o.Text), maxText+len("…"))
}

func TestCommunicatorsAreFoundByTheirRanks(t *testing.T) {
	one := rankText(0, 10, counts(1, 5))
	s, err := Parse([]byte(fmt.Sprintf(`{"communicators": [{"hash": "0x1", "size": 2, "ranks": [%s]}, {"hash": "0x2", "size": 2, "ranks": [%s]}, {"hash": "0x3", "size": 3, "ranks": [%s]}]}`,
		one, rankText(0, 10, counts(1, 7)), one)))
	require.NoError(t, err)
	hash := func(c *Communicator) string {
		if c == nil {
			return ""
		}
		return c.Hash
	}
	require.Equal(t, "0x3", hash(s.Find(9, 3, []Local{{Rank: 0, PID: 10}})), "the only one of that size")
	require.Equal(t, "0x2", hash(s.Find(9, 2, []Local{{Rank: 0, PID: 10, Issued: 8}})), "the one that is so far")
	require.Equal(t, "", hash(s.Find(9, 2, []Local{{Rank: 0, PID: 10, Issued: 9}})), "none is")
	require.Equal(t, "", hash(s.Find(9, 2, []Local{{Rank: 0, PID: 10, IsLate: true}})), "it may be either")
	require.Equal(t, "0x1", hash(s.Find(1, 2, nil)), "NCCL's own hash")
	require.Equal(t, "", hash(s.Find(9, 3, []Local{{Rank: 0, PID: 11}})), "of another process")
	require.Equal(t, "", hash(s.Find(9, 3, nil)))
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(statusText("", rankText(0, 10, counts(1, 5)))))
	f.Add([]byte(`{"communicators": [{"ranks": [{"rank": -1, "collective_counts": {"a": 18446744073709551615}}], "missing_ranks": [{}]}]}`))
	f.Add([]byte("{\"communicators\": [{\"missing_ranks\": [{\"rank\": 1, \"nvml_dev\": -1\n\"status\": {}}]}]}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		for i := range s.Communicators {
			s.Communicators[i].Judge([]int{1})
		}
		s.Find(1, 2, []Local{{Rank: 0, PID: 10}})
	})
}
