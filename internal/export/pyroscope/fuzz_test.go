// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	gpu "github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// One process's names do not have the rows of all others refused with its own.
func FuzzNames(f *testing.F) {
	f.Add("f", "a.py", "python3", "pod", "x=1")
	f.Add("\xff\xfe", "\x00\x1b[31m", "\xc3(", "\xed\xa0\x80", "\xff=\xff,\"")
	f.Fuzz(func(t *testing.T, function, file, comm, pod, labels string) {
		w := window.Window{Subject: gpu.Memory, Start: time.Unix(1, 0), End: time.Unix(2, 0), Rows: []gpu.Row{{
			Process: gpu.Process{ID: 7, PID: 7, Comm: comm, Pod: pod, Labels: labels}, Kind: "device",
			Stack:  stack.Stack{{Kind: stack.KindPython, Function: function, File: file, Line: 3}},
			Values: gpu.Values{AllocBytes: 1, InuseBytes: 1},
		}}}
		requests, err := (&Encoder{}).Encode(w)
		if err != nil || len(requests) == 0 {
			t.Fatal(len(requests), err)
		}
		for _, r := range requests {
			wire, err := proto.Marshal(r.Push)
			if err != nil {
				t.Fatal(err)
			}
			back := &pushv1.PushRequest{}
			if err := proto.Unmarshal(wire, back); err != nil {
				t.Fatal(err)
			}
			for _, s := range back.Series {
				for _, sample := range s.Samples {
					if _, err := profile.Parse(bytes.NewReader(sample.RawProfile)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
