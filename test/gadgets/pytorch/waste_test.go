// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRequestsAreThoseThatPyTorchRecords: of each line's blocks, what was requested and what
// rounding added, at each moment, as PyTorch's own recorder has it; and the two probes of the
// library agree.
func TestRequestsAreThoseThatPyTorchRecords(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True"} {
		t.Run(conf, func(t *testing.T) {
			t.Parallel()
			p := begin(t, []string{"PYTORCH_CUDA_ALLOC_CONF=" + conf}, "tensors.py", "3")
			a := trace[alloc](t, p, "cuda_alloc", "allocs", "--torch", "on", "--waste")
			a.attached(p.PID(), "libcuda.so")
			var imported struct{ Imported string }
			var m moment
			p.request("record", &imported)
			a.attachedTorch(p.PID(), "cuda_alloc")
			a.attached(p.PID(), "libc10_cuda.so")
			p.request("", &m)
			var compared, rounded uint64
			for n := range moments {
				if n > 0 {
					p.request("go", &m)
				}
				want := requests(m)
				a.until(fmt.Sprintf("requests of moment %d", n), func() (bool, any) {
					have := map[place]request{}
					for _, r := range a.rows {
						if r.Kind == "tensor" && int(r.Proc.PID) == m.PID && r.InuseBytes > 0 {
							at := place{r.Kind, r.Device, unqualified(ownLine(r.Frame, r.Stack))}
							have[at] = have[at].add(request{r.InuseBytes, r.RequestedBytes, r.RoundingBytes})
						}
					}
					d := unequal(want, have)
					return len(d) == 0, strings.Join(d, "\n")
				})
				for _, r := range want {
					compared, rounded = compared+1, rounded+r.rounding
				}
			}
			require.Greater(t, compared, uint64(moments*5), "lines that hold something")
			require.Greater(t, rounded, uint64(moments*4096), "bytes of rounding")
			t.Logf("%d lines compared, with %d KiB of rounding", compared, rounded>>10)
			a.end(map[string]uint64{})
			require.NotContains(t, a.log.String(), "disagree")
		})
	}
}

// request has the bytes of blocks, what was requested of them, and the rest.
type request struct{ bytes, requested, rounding uint64 }

func (r request) add(s request) request {
	return request{r.bytes + s.bytes, r.requested + s.requested, r.rounding + s.rounding}
}

// requests are those that PyTorch's recorder has. Lines that are not known are one.
func requests(m moment) map[place]request {
	all := map[place]request{}
	for _, l := range m.Lines {
		at := place{"tensor", l.Device, l.Line}
		all[at] = all[at].add(request{l.Bytes, l.Requested, l.Bytes - l.Requested})
	}
	return all
}

func unequal(want, have map[place]request) (text []string) {
	for p, w := range want {
		if have[p] != w {
			text = append(text, fmt.Sprintf("%+v: want %+v, have %+v", p, w, have[p]))
		}
	}
	for p, h := range have {
		if _, ok := want[p]; !ok {
			text = append(text, fmt.Sprintf("%+v: want nothing, have %+v", p, h))
		}
	}
	slices.Sort(text)
	return text
}
