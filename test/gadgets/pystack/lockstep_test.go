// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestLockstep: a program that does the same in each period of the sampler has the
// shares of the time that it used. With the kernel's own clock it has not, which
// shows that the program can be met in the same place each time.
func TestLockstep(t *testing.T) {
	const hz, seconds = 499, 3
	// errors in points, the largest
	deviation := func(t *testing.T, w *workload, samples map[string]float64) (largest float64) {
		w.in.Close()
		used := map[string]float64{}
		w.read(t, &used)
		all, sum := 0.0, samples["main"] // between the functions, where the program may be each time
		for name := range used {
			all += used[name]
			sum += samples[name]
		}
		if sum < hz/2 {
			t.Fatalf("%.0f samples at %d Hz", sum, hz)
		}
		for name := range used {
			is, want := 100*samples[name]/sum, 100*used[name]/all
			t.Logf("%s: %.1f %% of %.0f samples, used %.1f %%", name, is, sum, want)
			largest = max(largest, math.Abs(is-want))
		}
		return largest
	}
	t.Run("kernel's clock", func(t *testing.T) {
		// It must be seen once. On a busy machine, other work puts the program out
		// of step.
		for try := 1; ; try++ {
			w := start(t, pythons(t)[0], "testdata/lockstep.py", fmt.Sprint(hz))
			w.read(t, nil)
			resume := w.hold(t)
			c := load(t, onCPU, w.Process.Pid)
			stop := sample(t, c, hz)
			resume()
			until(t, c, hz)
			stop()
			samples := map[string]float64{}
			for k, v := range rows(t, c) {
				if f := frames(t, c, k.Stack); len(f) > 0 {
					samples[f[0].name] += float64(v.Samples)
				}
			}
			d := deviation(t, w, samples)
			if d >= 15 {
				return
			}
			if try == 10 {
				t.Fatalf("shares are right to %.1f points with a fixed period: the program is not in step", d)
			}
		}
	})
	t.Run("ig-gpu", func(t *testing.T) {
		w := start(t, pythons(t)[0], "testdata/lockstep.py", fmt.Sprint(hz))
		w.read(t, nil)
		file := filepath.Join(t.TempDir(), "p")
		if stderr, err := sampled(t, w, "--timeout", fmt.Sprint(seconds),
			"--frequency", fmt.Sprint(hz), "-o", "none", "--pprof-out", file); err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := pprof.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		samples := map[string]float64{}
		for _, f := range p.Frames(profile.Samples) {
			samples[f.Frame.Function] += float64(f.Self)
		}
		if d := deviation(t, w, samples); d > 8 {
			t.Errorf("a share is %.1f points off", d)
		}
	})
}
