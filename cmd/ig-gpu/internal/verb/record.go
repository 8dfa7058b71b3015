// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/containers"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/console"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// format is a kind of file that a gadget writes, by the ends of its names.
type format struct {
	ends           []string
	operator, flag string
	what           string // the file is, and how to open it
}

// recording is a value of --what.
type recording struct {
	name, gadget string
	flags        []engine.Flag
	formats      []format
}

// recordings are all values of --what; the first is the default.
func recordings() []recording {
	pprofFile := format{[]string{".pb.gz", ".pprof"}, "sink", "pprof-out", "pprof profile: ig-gpu report FILE, or go tool pprof FILE"}
	flameFile := format{[]string{".html"}, "sink", "flamegraph-out", "flame graph: open it in a browser"}
	rowsFile := format{[]string{".json", ".jsonl", ".ndjson"}, "sink", "jsonl-out", "one JSON object per line"}
	snapshotFile := format{[]string{".pickle"}, "sink", "snapshot-out", "memory snapshot of PyTorch: drop it on pytorch.org/memory_viz, or python3 _memory_viz.py stats FILE"}
	pageFile := format{[]string{".html"}, "timeline", "timeline-html", "timeline: open it in a browser"}
	traceFile := format{[]string{".json.gz", ".json", ".perfetto-trace"}, "timeline", "timeline-out", "trace (JSON, gzip): open it in ui.perfetto.dev or chrome://tracing"}
	eventFile := format{[]string{".jsonl", ".ndjson"}, "timeline", "events-out", "events, one JSON object per line"}
	tableFile := format{[]string{".parquet"}, "timeline", "events-out", "events as a table: for DuckDB, pandas or Spark"}
	return []recording{
		{"memory", "cuda_alloc", nil, []format{flameFile, pprofFile, snapshotFile, rowsFile}},
		{"launches", "cuda_kernel", nil, []format{pageFile, traceFile, eventFile, tableFile, pprofFile}},
		{"cpu", "py_stack", nil, []format{flameFile, pprofFile, rowsFile}},
		{"collectives", "nccl_trace", nil, []format{pageFile, traceFile, eventFile, tableFile}},
	}
}

func newRecord(cfg Config) *cobra.Command {
	var what string
	var files []string
	watch := duration.Value(30 * time.Second)
	cmd := &cobra.Command{
		Use:   "record [PID...] -o FILE",
		Short: "Record memory, launches, Python or collectives into a file",
		Long: "Record what a process does for some seconds and write it to a file, whose name says in which form:\n" +
			"a page for the browser (.html), a profile (.pb.gz), a trace for Perfetto (.json.gz), a table (.parquet).\n" +
			"Several -o write several files. Ctrl-C ends the recording sooner; the files are written all the same.",
		Example: "  ig-gpu record 4711 -o memory.html                  who holds GPU memory\n" +
			"  ig-gpu record 4711 --what launches -o step.html    what the GPU does when\n" +
			"  ig-gpu record 4711 --for 5m -o a.pb.gz -o a.html   two files at once",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(files) == 0 {
				return errors.New("say where to write with -o FILE; the end of its name says in which form: " + strings.Join(endsOf(recordings()[0].formats), ", "))
			}
			run, written, err := planRecording(what, files, time.Duration(watch))
			if err != nil {
				return err
			}
			if run.PIDs, err = pids(cfg, cmd, args); err != nil {
				return err
			}
			v, err := vendorOf(cfg.ProcFS, run.PIDs)
			if err != nil {
				return err
			}
			run.Gadget = v.gadget(run.Gadget)
			ctx, stop := interruptible(cmd)
			defer stop()
			length := "until Ctrl-C"
			if watch > 0 {
				length = "for " + time.Duration(watch).String() + " (Ctrl-C ends it sooner)"
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Recording %s of process %s %s\n", what, joined(run.PIDs), length)
			run.Logger = warnings(cmd.ErrOrStderr()) // the files that were written are listed below
			if err := cfg.Engine.Run(ctx, run); err != nil {
				return err
			}
			nameWritten(cmd.ErrOrStderr(), files, written)
			return nil
		},
	}
	cmd.Flags().StringArrayVarP(&files, "output", "o", nil, "File to write; may be given more than once")
	cmd.Flags().StringVar(&what, "what", recordings()[0].name, "memory, launches, cpu or collectives")
	cmd.Flags().Var(&watch, "for", "How long, such as 30s or 2m; 0 until Ctrl-C")
	_ = cmd.RegisterFlagCompletionFunc("what", cobra.FixedCompletions([]string{"memory", "launches", "cpu", "collectives"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// planRecording finds the gadget, and by the files' names its flags.
func planRecording(what string, files []string, duration time.Duration) (engine.Run, []format, error) {
	all := recordings()
	at := slices.IndexFunc(all, func(r recording) bool { return r.name == what })
	if at < 0 {
		names := make([]string, len(all))
		for n, r := range all {
			names[n] = r.name
		}
		return engine.Run{}, nil, fmt.Errorf("--what %s: want one of %s", what, strings.Join(names, ", "))
	}
	run := engine.Run{Gadget: all[at].gadget, For: duration, Flags: slices.Clone(all[at].flags)}
	var written []format
	for _, path := range files {
		f, ok := formatOf(path, all[at].formats)
		if !ok {
			return engine.Run{}, nil, fmt.Errorf("-o %s: the end of the name does not say in which form. For --what %s: %s",
				path, what, strings.Join(endsOf(all[at].formats), ", "))
		}
		for n, other := range written {
			if other.flag == f.flag {
				return engine.Run{}, nil, fmt.Errorf("-o %s and -o %s: a recording writes one file of each form", files[n], path)
			}
		}
		written = append(written, f)
		run.Flags = append(run.Flags, engine.Flag{Operator: f.operator, Name: f.flag, Value: path})
	}
	return run, written, nil
}

func formatOf(path string, formats []format) (format, bool) {
	for _, f := range formats {
		if slices.ContainsFunc(f.ends, func(end string) bool { return strings.HasSuffix(path, end) }) {
			return f, true
		}
	}
	return format{}, false
}

func endsOf(formats []format) (ends []string) {
	for _, f := range formats {
		ends = append(ends, f.ends...)
	}
	return ends
}

// nameWritten lists the files that were written. One that could not be written has made the
// run fail.
func nameWritten(w io.Writer, files []string, written []format) {
	for n, path := range files {
		size := ""
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			size = " (" + profile.FormatBytes(info.Size()) + ")"
		}
		fmt.Fprintf(w, "Wrote %s%s, %s\n", path, size, strings.ReplaceAll(written[n].what, "FILE", path))
	}
}

// warnings is a logger that leaves out all other messages.
func warnings(to io.Writer) logger.Logger {
	l := logrus.New()
	l.SetOutput(to)
	l.SetLevel(logrus.WarnLevel)
	console.CleanLogs(l)
	containers.QuietWithoutRuntime(l)
	return l
}

func joined(pids []uint32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(pids), " ", ", "), "[]")
}

// writeFile writes a file completely or not at all.
func writeFile(path string, write func(io.Writer) error) error {
	o, err := file.Prepare(path)
	if err != nil {
		return err
	}
	if err := o.Commit(write); err != nil {
		o.Discard()
		return file.Explain(path, err)
	}
	return nil
}
