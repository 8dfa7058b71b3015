// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slowFile is one whose server takes some time for each read.
type slowFile struct {
	guard *Guard
	use   use
	takes time.Duration
}

func openSlow(g *Guard, of Tenant, takes time.Duration) *slowFile {
	return &slowFile{g, use{of, "/usr/lib", &fileReads{}}, takes}
}

func (f *slowFile) ReadAt(b []byte, at int64) (int, error) {
	time.Sleep(f.takes)
	return bytes.NewReader(make([]byte, 4096)).ReadAt(b, at)
}

// read reads so many times, and returns how often it could.
func (f *slowFile) read(times int) (n int) {
	for ; n < times; n++ {
		if _, err := f.guard.readAt(f.use, f, make([]byte, 16), 0); err != nil {
			break
		}
	}
	return n
}

// A server of FUSE that answers each read just so quickly that it is not paid for: who reads a table of it holds a lock.
func TestAllReadsOfAFileAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		took := func(fn func()) time.Duration {
			began := time.Now()
			fn()
			return time.Since(began)
		}
		file := openSlow(&g, hostile, leastLimit-time.Millisecond)
		require.LessOrEqual(t, took(func() { require.Less(t, file.read(10000), 10000) }), maxWait+2*maxWait/waitShare+5*leastLimit)
		require.Zero(t, file.read(1), "it is as one that hangs")
		time.Sleep(waitShare * maxWait)
		require.Positive(t, file.read(1), "but for a share of the time")

		const files = 1000
		whole := took(func() {
			for range files {
				openSlow(&g, hostile, leastLimit-time.Millisecond).read(10000)
			}
		})
		require.Less(t, whole, maxWait+whole/waitShare+files*3*leastLimit)
		require.Less(t, took(func() { openSlow(&g, hostile, leastLimit-time.Millisecond).read(10000) }), 3*leastLimit, "the tenant has paid")
		require.Equal(t, 20, openSlow(&g, honest, 20*time.Millisecond).read(20), "another has not")
	})
}

// Where files are read over a network, and on a busy machine, nothing is given up for that.
func TestReadsThatAreSlowByNatureAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		require.Equal(t, 100000, openSlow(&g, honest, 100*time.Microsecond).read(100000), "of the page cache, for hours")
		for range 100 {
			require.Equal(t, 25, openSlow(&g, honest, time.Millisecond).read(25), "a library of a hundred")
		}
		require.Equal(t, 100, openSlow(&g, honest, 4*time.Millisecond).read(100))
		require.NoError(t, g.Run(honest, "/", func() { time.Sleep(answerLimit - 10*time.Millisecond) }), "little was paid")
		time.Sleep(waitShare * maxWait)
		require.Equal(t, 150, openSlow(&g, honest, 10*time.Millisecond).read(150), "a large library on a slow one")
	})
}
