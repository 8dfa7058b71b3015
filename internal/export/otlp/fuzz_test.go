// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Protobuf refuses a whole request for one text that is not UTF-8.
func FuzzNames(f *testing.F) {
	f.Add("f", "a.py", "python3", "pod", "x=1")
	f.Add("\xff\xfe", "\x00\x1b[31m", "\xc3(", "\xed\xa0\x80", "\xff=\xff,\"")
	f.Fuzz(func(t *testing.T, function, file, comm, pod, labels string) {
		process := profile.Process{ID: 7, PID: 7, Comm: comm, Pod: pod, Labels: labels}
		frames := stack.Stack{{Kind: stack.KindPython, Function: function, File: file, Line: 3}}
		e := &Encoder{}
		for _, r := range e.Profiles(window.Window{
			Subject: profile.Memory, Start: time.Unix(1, 0), End: time.Unix(2, 0),
			Rows: []profile.Row{{Process: process, Kind: "device", Stack: frames, Values: profile.Values{AllocBytes: 1, InuseBytes: 1}}},
		}) {
			if _, err := proto.Marshal(r); err != nil {
				t.Fatal(err)
			}
		}
		oom := e.OOM(profile.OOM{Process: process, API: function, Error: comm, RefusedBy: file, Stack: frames, Holders: []profile.Holder{{Bytes: 1, Stack: frames}}})
		if _, err := proto.Marshal(oom); err != nil {
			t.Fatal(err)
		}
	})
}
