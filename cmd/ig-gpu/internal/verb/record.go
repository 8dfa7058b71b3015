// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
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
	formats      []format
	subject      string   // of a process
	rows         []string // data sources that have a row if anything was recorded
	none         string   // what no process did if there is none
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
		{"memory", "cuda_alloc", []format{flameFile, pprofFile, snapshotFile, rowsFile},
			"memory of process %s", []string{"allocs", "ooms"}, "allocated or freed GPU memory"},
		{"launches", "cuda_kernel", []format{pageFile, traceFile, eventFile, tableFile, pprofFile},
			"launches of process %s", []string{"calls"}, "called the driver"},
		{"cpu", "py_stack", []format{flameFile, pprofFile, rowsFile},
			"what process %s does on the CPU", []string{"samples"}, "ran Python"},
		{"collectives", "nccl_trace", []format{pageFile, traceFile, eventFile, tableFile},
			"collectives of process %s", []string{"communicators"}, "called NCCL"},
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
			of, written, err := planRecording(what, files)
			if err != nil {
				return err
			}
			pids, err := pids(cfg, cmd, args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			return record(ctx, cfg, cmd.ErrOrStderr(), of, written, pids, time.Duration(watch))
		},
	}
	cmd.Flags().StringArrayVarP(&files, "output", "o", nil, "File to write; may be given more than once")
	cmd.Flags().StringVar(&what, "what", recordings()[0].name, "memory, launches, cpu or collectives")
	cmd.Flags().Var(&watch, "for", "How long, such as 30s or 2m; 0 until Ctrl-C")
	_ = cmd.RegisterFlagCompletionFunc("what", cobra.FixedCompletions([]string{"memory", "launches", "cpu", "collectives"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// written is a file that is written.
type written struct {
	path string
	format
}

// record runs the gadget of a recording, and says on w what it does and has done.
func record(ctx context.Context, cfg Config, w io.Writer, of recording, files []written, pids []uint32, watch time.Duration) error {
	v, err := vendorOf(cfg.ProcFS, pids)
	if err != nil {
		return err
	}
	run := engine.Run{Gadget: v.gadget(of.gadget), PIDs: pids, For: watch}
	for _, f := range files {
		run.Flags = append(run.Flags, engine.Flag{Operator: f.operator, Name: f.flag, Value: f.path, Typed: "-o"})
	}
	length := "until Ctrl-C"
	if watch > 0 {
		length = "for " + watch.String() + " (Ctrl-C ends it sooner)"
	}
	fmt.Fprintf(w, "Recording "+of.subject+" %s\n", joined(pids), length)
	seen := &recorded{procfs: cfg.ProcFS, of: of, vendor: v, pids: pids}
	seen.warn(w)
	run.Operators = seen.operators()
	run.Logger = warnings(cfg, w) // the files that were written are listed below
	ends := watchEnds(cfg.ProcFS, pids)
	err = cfg.Engine.Run(ctx, run)
	ended := ends()
	if err != nil {
		return err
	}
	seen.conclude(w, ended)
	nameWritten(w, files)
	return nil
}

// planRecording finds what is recorded, and by the files' names in which forms.
func planRecording(what string, files []string) (recording, []written, error) {
	all := recordings()
	at := slices.IndexFunc(all, func(r recording) bool { return r.name == what })
	if at < 0 {
		names := make([]string, len(all))
		for n, r := range all {
			names[n] = r.name
		}
		return recording{}, nil, fmt.Errorf("--what %s: want one of %s", what, strings.Join(names, ", "))
	}
	var out []written
	for _, path := range files {
		f, ok := formatOf(path, all[at].formats)
		if !ok {
			return recording{}, nil, noFormat(path, all[at])
		}
		for _, other := range out {
			switch {
			case other.flag == f.flag && other.what == f.what:
				return recording{}, nil, fmt.Errorf("-o %s and -o %s: a recording writes one file of each form", other.path, path)
			case other.flag == f.flag:
				return recording{}, nil, fmt.Errorf("-o %s and -o %s: both are for the events, which a recording writes in one form: leave out one of the two", other.path, path)
			}
		}
		out = append(out, written{path, f})
	}
	return all[at], out, nil
}

// noFormat is the error for a file whose name says no form that the recording has.
func noFormat(path string, of recording) error {
	var others []string
	for _, r := range recordings() {
		if _, ok := formatOf(path, r.formats); ok {
			others = append(others, "--what "+r.name)
		}
	}
	why := "the end of the name does not say in which form"
	if len(others) > 0 {
		why = "this format is for " + strings.Join(others, " and ")
	}
	return fmt.Errorf("-o %s: %s. For --what %s: %s", path, why, of.name, strings.Join(endsOf(of.formats), ", "))
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
func nameWritten(w io.Writer, files []written) {
	for _, f := range files {
		size := ""
		if info, err := os.Stat(f.path); err == nil && info.Mode().IsRegular() {
			size = " (" + profile.FormatBytes(info.Size()) + ")"
		}
		fmt.Fprintf(w, "Wrote %s%s, %s\n", f.path, size, strings.ReplaceAll(f.what, "FILE", f.path))
	}
}

// warnings is a logger that leaves out all other messages.
func warnings(cfg Config, to io.Writer) logger.Logger {
	l := logrus.New()
	l.SetOutput(to)
	l.SetLevel(logrus.WarnLevel)
	if cfg.Console != nil && !cfg.Console.HasColour() {
		l.SetFormatter(&logrus.TextFormatter{DisableColors: true})
	}
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
