// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// roundsOf names the number of rounds to a test that is the program at the terminal.
const roundsOf = "CONSOLE_TEST_ROUNDS"

// TestMain is the program at the terminal, too.
func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(roundsOf)); err == nil {
		readAndRestore(n)
		return
	}
	os.Exit(m.Run())
}

// readAndRestore reads keys until Ctrl-C, over and over, and writes how many there were.
func readAndRestore(rounds int) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	terminal := New(os.Stdin, os.Stdout)
	var keys atomic.Int64
	for range rounds {
		terminal.Read(func(byte) { keys.Add(1) })
		fmt.Println("ready")
		<-interrupts
		terminal.Restore()
	}
	fmt.Println("keys", keys.Load())
}

// TestRestoreEndsTheReadingAlthoughCtrlCDiscardsKeys that the reader was about to read.
func TestRestoreEndsTheReadingAlthoughCtrlCDiscardsKeys(t *testing.T) {
	const rounds = 3000
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprint(roundsOf, "=", rounds))
	there, err := pty.Start(cmd)
	require.NoError(t, err)
	defer there.Close()
	defer func() { _ = cmd.Process.Kill() }()
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()

	seen, began := "", 0
	buffer := make([]byte, 4096)
	for !strings.Contains(seen, "keys ") {
		n, err := there.Read(buffer)
		require.NoError(t, err, "in round %d: Restore does not return", began)
		seen += string(buffer[:n])
		for ; began < strings.Count(seen, "ready"); began++ {
			for _, typed := range []string{"key", "\x03"} {
				_, err = there.WriteString(typed)
				require.NoError(t, err)
			}
		}
	}
	require.Equal(t, rounds, began)
	_, count, _ := strings.Cut(seen, "keys ")
	require.False(t, strings.HasPrefix(count, "0"), "no key was read in any round: nothing was tried")
	require.NoError(t, cmd.Wait())
}

func TestAHangUpThatIsIgnoredStaysIgnored(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // the tests themselves may run under nohup
	require.Equal(t, []os.Signal{unix.SIGHUP}, HangUp())
	signal.Ignore(unix.SIGHUP) // as nohup does
	defer signal.Reset(unix.SIGHUP)
	require.Empty(t, HangUp())
}
