// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated/hangfs"
)

const hostile, honest, slow Tenant = 1, 2, 3

func TestOnlyWhatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		release := make(chan struct{})
		hang := func() { <-release }
		fine := func() {}
		require.NoError(t, g.Run(hostile, "/usr/lib", fine))
		for n := range maxHanging {
			dir := fmt.Sprint("/hangs", n)
			require.ErrorIs(t, g.Run(hostile, dir, hang), ErrHangs)
			began := time.Now()
			require.ErrorIs(t, g.Run(hostile, dir, func() { t.Error("called where another call hangs") }), ErrHangs)
			require.Zero(t, time.Since(began), "known to hang")
		}
		require.ErrorIs(t, g.Run(hostile, "/new", fine), ErrHangs, "as many threads as a tenant may hold")
		require.NoError(t, g.Run(hostile, "/usr/lib", fine), "it answered before")
		require.NoError(t, g.Run(honest, "/hangs0", fine))
		close(release)
		synctest.Wait()
		require.NoError(t, g.Run(hostile, "/hangs0", fine))
		require.Zero(t, g.hanging)
	})
}

// Containers start and end while a call hangs: what is remembered is bounded, and the call is not forgotten.
func TestTenantsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		release := make(chan struct{})
		require.ErrorIs(t, g.Run(hostile, "/hangs", func() { <-release }), ErrHangs)
		answer := make(chan error)
		go func() { answer <- g.Run(slow, "/", func() { time.Sleep(answerLimit / 2) }) }()
		for n := range 3 * maxTenants {
			require.NoError(t, g.Run(slow+1+Tenant(n), "/", func() {}))
		}
		require.LessOrEqual(t, len(g.tenants), maxTenants)
		require.ErrorIs(t, g.Run(hostile, "/hangs", func() {}), ErrHangs)
		require.NoError(t, <-answer)
		close(release)
		synctest.Wait()
		require.NoError(t, g.Run(hostile, "/hangs", func() {}))
		require.Zero(t, g.hanging)
	})
}

// Those of many tenants hang, which is no reason not to read another one's.
func TestManyThatHangTakeNoRoomOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		release := make(chan struct{})
		for n := range maxHangingAll {
			of := slow + 1 + Tenant(n/maxHanging)
			require.ErrorIs(t, g.Run(of, fmt.Sprint("/", n), func() { <-release }), ErrHangs)
		}
		require.Equal(t, maxHangingAll, g.hanging)
		require.NoError(t, g.Run(honest, "/new", func() {}))
		require.ErrorIs(t, g.Run(hostile, "/", func() { <-release }), ErrHangs)
		require.ErrorIs(t, g.Run(hostile, "/other", func() { t.Error("called beyond the bound") }), ErrHangs)
		close(release)
		synctest.Wait()
		require.Zero(t, g.hanging)
	})
}

// closed counts how often it was closed.
type closed struct{ times atomic.Int32 }

func (c *closed) Close() error { c.times.Add(1); return nil }

// hangsOnClose is a file whose server does not answer when it is closed.
type hangsOnClose struct{ release chan struct{} }

func (h hangsOnClose) Close() error { <-h.release; return nil }

// Closing a file may hang, too. One thread waits, however many files there are, and all are closed in the end.
func TestFilesAreClosedWhenTheServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		release := make(chan struct{})
		var c closed
		g.Close(hostile, "/fine", &c)
		synctest.Wait()
		require.EqualValues(t, 1, c.times.Load())

		g.Close(hostile, "/hangs", hangsOnClose{release})
		time.Sleep(time.Second)
		require.ErrorIs(t, g.Run(hostile, "/hangs", func() { t.Error("opened where closing hangs") }), ErrHangs)
		for range 100 {
			g.Close(hostile, "/hangs", &c)
		}
		synctest.Wait()
		require.EqualValues(t, 1, c.times.Load())
		require.Equal(t, 1, g.hanging)
		g.Close(honest, "/hangs", &c)
		synctest.Wait()
		require.EqualValues(t, 2, c.times.Load(), "of another tenant")
		close(release)
		synctest.Wait()
		require.EqualValues(t, 102, c.times.Load())
		require.Zero(t, g.hanging)
		require.Empty(t, g.tenants[hostile].unclosed)
	})
}

// What is remembered of the places of a tenant is bounded, and takes no room of others.
func TestPlacesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		release := make(chan struct{})
		for n := range 3 * maxPlaces {
			require.NoError(t, g.Run(hostile, fmt.Sprint("/", n), func() {}))
		}
		require.Len(t, g.tenants[hostile].came, maxPlaces)
		require.NoError(t, g.Run(honest, "/usr/lib", func() {}))
		for n := range maxHanging {
			require.ErrorIs(t, g.Run(honest, fmt.Sprint("/hangs", n), func() { <-release }), ErrHangs)
		}
		require.NoError(t, g.Run(honest, "/usr/lib", func() {}))
		close(release)
	})
}

// A file system that answers just in time, again and again, may take two seconds and 2 % of the time.
func TestSlowAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		var waited time.Duration
		began := time.Now()
		for n := range 1000 {
			at := time.Now()
			_ = g.Run(hostile, fmt.Sprint("/", n), func() { time.Sleep(answerLimit - time.Millisecond) })
			waited += time.Since(at)
			time.Sleep(100 * time.Millisecond)
		}
		whole := time.Since(began)
		require.Less(t, waited, maxWait+whole/waitShare+1000*leastLimit)
		require.NoError(t, g.Run(honest, "/", func() { time.Sleep(answerLimit - time.Millisecond) }))
	})
}

// On a busy machine each call takes some milliseconds: no tenant pays for that.
func TestABusyMachineIsNotPaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		for n := range 1000 {
			require.NoError(t, g.Run(honest, fmt.Sprint("/", n), func() { time.Sleep(leastLimit) }))
		}
		require.NoError(t, g.Run(honest, "/", func() { time.Sleep(answerLimit - time.Millisecond) }))
	})
}

// A server of FUSE that opens files and never answers whether they can be read: who waits for that holds
// the lock of Go's poller.
func TestOpeningDoesNotAskWhetherThereIsSomethingToRead(t *testing.T) {
	dir := t.TempDir()
	hangfs.Mount(t, dir)
	began := time.Now()
	f, err := NewCache(Config{}).OpenIn(uint32(os.Getpid()), filepath.Join(dir, "libcuda.so.1"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Less(t, time.Since(began), hangfs.Ends/2, "its server has not ended")
}

// A server of FUSE may answer that a request was interrupted, each time: no thread asks for ever.
func TestAServerThatAnswersEINTRIsGivenUp(t *testing.T) {
	for _, operation := range []string{"open", "read"} {
		dir := t.TempDir()
		hangfs.MountInterrupted(t, dir, operation)
		c := NewCache(Config{})
		f, err := c.OpenIn(uint32(os.Getpid()), filepath.Join(dir, "libcuda.so.1"))
		if operation == "read" {
			require.NoError(t, err)
			defer f.Close()
			_, err = f.ReadAt(make([]byte, 64), 0)
		}
		require.ErrorIs(t, err, unix.EINTR, operation)
		require.Zero(t, c.guard.hanging, "calls that have not returned")
	}
}

// A file system of FUSE whose server never answers.
func TestAFileSystemThatHangsDoesNotBlock(t *testing.T) {
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	dir := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device.Fd())
	if err := unix.Mount("hangs", dir, "fuse", 0, options); err != nil {
		device.Close()
		t.Skipf("FUSE cannot be mounted here: %v", err)
	}
	answers := false
	t.Cleanup(func() {
		require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH))
		if !answers {
			device.Close() // ends the calls that wait
		}
	})
	sleeper := exec.Command("sleep", "100")
	require.NoError(t, sleeper.Start())
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	pid := uint32(sleeper.Process.Pid)
	c := NewCache(Config{})
	began := time.Now()
	for range 10 {
		_, err = c.OpenIn(pid, filepath.Join(dir, "libcuda.so.1"))
		require.ErrorIs(t, err, ErrHangs)
	}
	require.Less(t, time.Since(began), 2*answerLimit, "it is asked once")
	f, err := c.OpenIn(pid, "/proc/self/../version")
	if err == nil {
		f.Close()
	}
	require.NotErrorIs(t, err, ErrHangs, "others answer")

	require.NoError(t, device.Close())
	answers = true
	require.Eventually(t, func() bool {
		_, err := c.OpenIn(pid, filepath.Join(dir, "libcuda.so.1"))
		return err != nil && !errors.Is(err, ErrHangs)
	}, time.Minute, 10*time.Millisecond, "its server has ended")
}
