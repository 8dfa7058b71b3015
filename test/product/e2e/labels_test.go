// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestLabelsOfProcessesAreInFilesAndMetrics: two jobs and a process of none, by their
// environment, in one run.
func TestLabelsOfProcessesAreInFilesAndMetrics(t *testing.T) {
	t.Parallel()
	lines, profile := filepath.Join(t.TempDir(), "lines"), filepath.Join(t.TempDir(), "p.pb.gz")
	address := loopback.FreeAddress(t)
	jobs := []string{"4711", "4712", ""}
	var all []*subject.Steps
	for _, job := range jobs {
		var env []string
		if job != "" {
			env = []string{"SLURM_JOB_ID=" + job}
		}
		w := subject.StartSteps(t, env...)
		w.Load()
		all = append(all, w)
	}
	pids := fmt.Sprintf("%d,%d,%d", all[0].PID(), all[1].PID(), all[2].PID()) // others trace beside this test
	r := start(t, "--pid", pids, "--labels", `slurm_job=env:SLURM_JOB_ID,script=title:(\w+)\.py`, "--jsonl-out", lines, "--pprof-out", profile,
		"--metrics-listen", address, "--metrics-nvml", "off")
	for i, w := range all {
		r.waitAttached(w.PID())
		w.Do("alloc weights %d 1000000", i+1)
	}
	for i, w := range all {
		truth := w.Truth()
		series := []string{fmt.Sprintf(`process_pid="%d"`, w.PID()), fmt.Sprintf(`slurm_job=%q`, jobs[i]), `script="steps"`}
		r.wait("the process's series", func() bool {
			v, _ := loopback.Sum(t, address, "gpu_memory_inuse_bytes", series...)
			return v == float64(truth.InUseBytes())
		})
	}
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())

	inProfile := map[string]int64{}
	p, _ := readProfile(t, profile)
	for _, s := range p.Sample {
		require.Equal(t, []string{"steps"}, s.Label["script"])
		for i, kind := range p.SampleType {
			if kind.Type == "alloc_space" {
				inProfile[fmt.Sprint(s.Label["slurm_job"])] += s.Value[i]
			}
		}
	}
	require.Equal(t, map[string]int64{"[4711]": 1000000, "[4712]": 2000000, "[]": 3000000}, inProfile)

	content, err := os.ReadFile(lines)
	require.NoError(t, err)
	seen := map[int]map[string]string{}
	for text := range bytes.Lines(content) {
		var l struct {
			PID    int
			Labels map[string]string
		}
		require.NoError(t, json.Unmarshal(text, &l))
		if l.Labels != nil {
			seen[l.PID] = l.Labels
		}
	}
	require.Equal(t, map[int]map[string]string{
		all[0].PID(): {"slurm_job": "4711", "script": "steps"},
		all[1].PID(): {"slurm_job": "4712", "script": "steps"},
		all[2].PID(): {"script": "steps"},
	}, seen)
}

// TestAFrameIsALabel: a process that works for several models, which differ in a frame.
func TestAFrameIsALabel(t *testing.T) {
	t.Parallel()
	profile, address := filepath.Join(t.TempDir(), "p.pb.gz"), loopback.FreeAddress(t)
	w := subject.StartSteps(t)
	w.Load()
	r := start(t, "--pid", fmt.Sprint(w.PID()), "--labels", `model=frame:^(weights|kv_cache) \(.*/steps\.py\)$`, "--pprof-out", profile,
		"--metrics-listen", address, "--metrics-nvml", "off")
	r.waitAttached(w.PID())
	want := map[string]int64{"weights": 2_000_000, "kv_cache": 15_000_000, "": 700_000}
	w.Do("alloc weights 2 1000000")
	w.Do("alloc kv_cache 3 5000000")
	w.Do("alloc workspace 7 100000")
	for model, bytes := range want {
		r.wait("the series of "+model, func() bool {
			v, _ := loopback.Sum(t, address, "gpu_memory_inuse_bytes", fmt.Sprintf("model=%q", model))
			return v == float64(bytes)
		})
	}
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	got := map[string]int64{}
	p, _ := readProfile(t, profile)
	for _, s := range p.Sample {
		for i, kind := range p.SampleType {
			if kind.Type == "alloc_space" {
				got[strings.Join(s.Label["model"], "")] += s.Value[i]
			}
		}
	}
	require.Equal(t, want, got)
}

func TestLabelsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	require.Contains(t, fails(t, gadget(t, "--labels", "slurm,team")),
		`--labels: "team": want NAME=env:VARIABLE, NAME=title:REGEXP, NAME=frame:REGEXP, NAME=span:ATTRIBUTE, or one of ray, slurm, vllm`)
}
