// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/difference"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/flamegraph"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
)

// newDiff compares two files of --pprof-out: who took the difference.
func newDiff() *cobra.Command {
	var limit int
	var page, output, paths string
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Show the growth by line between two profiles",
		Long: "Show which lines hold more, or less, GPU memory in the second profile than in the first (GREW),\n" +
			"and the memory freed in between (FREED; for two files of one run).\n" +
			"Processes are not distinguished, so that a restarted server, or another replica, can be compared.",
		Example: "  ig-gpu record 4711 -o before.pb.gz     and later: -o after.pb.gz\n" +
			"  ig-gpu diff before.pb.gz after.pb.gz\n" +
			"  ig-gpu diff before.pb.gz after.pb.gz --flamegraph-out diff.html",
		Args: exactly(2, "two profiles, before and after"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := textOrJSON(output); err != nil {
				return err
			}
			libraries, err := library.Parse(paths)
			if err != nil {
				return fmt.Errorf("--library-paths: %w", err)
			}
			before, after, err := readPair(args[0], args[1], libraries, readProfile)
			if err != nil {
				return err
			}
			if page != "" {
				title := "GPU memory: " + args[1] + " against " + args[0]
				if err := writeFile(page, func(w io.Writer) error {
					return flamegraph.Write(w, flamegraph.Page{Title: title, Profile: after, Base: before})
				}); err != nil {
					return fmt.Errorf("write flame graph: %w", err)
				}
			}
			changes := profile.Diff(before, after)
			if output == "json" {
				return diffJSON(cmd.OutOrStdout(), changes, limit)
			}
			return difference.Write(cmd.OutOrStdout(), changes, difference.Options{Limit: limit, Hint: ": --max-entries 0 shows them"})
		},
	}
	cmd.Flags().IntVar(&limit, "max-entries", 20, "Number of lines to show, by largest change; 0 for all")
	cmd.Flags().StringVar(&page, "flamegraph-out", "", "Also write the comparison as a flame graph (HTML)")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	addLibraryPaths(cmd, &paths)
	return cmd
}

// change is one line of a difference in JSON.
type change struct {
	Frame       string `json:"frame"`
	Kind        string `json:"kind"`
	Device      int32  `json:"device"` // -1: not known
	GrewBytes   int64  `json:"grew_bytes"`
	GrewObjects int64  `json:"grew_objects"`
	FreedBytes  *int64 `json:"freed_bytes"` // null: the profiles are of two runs
	BeforeBytes int64  `json:"before_bytes"`
	AfterBytes  int64  `json:"after_bytes"`
}

func diffJSON(w io.Writer, changes profile.Changes, limit int) error {
	all := changesOf(changes)
	if limit > 0 {
		all, _ = first(all, limit)
	}
	return writeLines(w, "print difference", all)
}

// changesOf are the lines that hold another amount than before, or have freed something.
func changesOf(changes profile.Changes) (all []change) {
	for _, c := range changes.ByLine() {
		if c.Delta(profile.InuseSpace) == 0 && c.Delta(profile.InuseObjects) == 0 && c.Freed() <= 0 {
			continue
		}
		line := change{
			Frame: c.Stack.Where(), Kind: c.Kind, Device: c.Device, GrewBytes: c.Delta(profile.InuseSpace),
			GrewObjects: c.Delta(profile.InuseObjects), BeforeBytes: c.Before.InuseBytes, AfterBytes: c.After.InuseBytes,
		}
		if freed := c.Freed(); freed >= 0 {
			line.FreedBytes = &freed
		}
		all = append(all, line)
	}
	return all
}

func addLibraryPaths(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "library-paths", "", "Regular expression of the Python files that are not the program's own; "+
		"with + in front, in addition to the standard library and installed packages")
}

// readPair reads two profiles of memory.
func readPair(first, second string, libraries library.Paths, read func(string, library.Paths) (*profile.Profile, error)) (before, after *profile.Profile, err error) {
	if before, err = read(first, libraries); err != nil {
		return nil, nil, err
	}
	if after, err = read(second, libraries); err != nil {
		return nil, nil, err
	}
	if before.Subject != profile.Memory || after.Subject != profile.Memory {
		return nil, nil, fmt.Errorf("diff is of memory: for other profiles, ig-gpu report %s --base %s", second, first)
	}
	return before, after, nil
}

// readProfile reads a file of --pprof-out. Frames of libraries are marked.
func readProfile(path string, libraries library.Paths) (*profile.Profile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	defer file.Close()
	return decodeProfile(path, file, libraries)
}

func decodeProfile(path string, from io.Reader, libraries library.Paths) (*profile.Profile, error) {
	p, err := pprof.Decode(from)
	if err != nil {
		return nil, fmt.Errorf("read profile %s: %w", path, err)
	}
	for _, r := range p.Rows {
		libraries.Mark(r.Stack)
	}
	return p, nil
}
