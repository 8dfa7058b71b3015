// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/difference"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/flamegraph"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
)

// newDiffCommand compares two files of --pprof-out: who took the difference.
func newDiffCommand() *cobra.Command {
	var limit int
	var page, paths string
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Show the growth by line between two profiles",
		Long: "Show which lines hold more, or less, GPU memory in the second profile than in the first (GREW),\n" +
			"and the memory freed in between (FREED; for two files of one run).\n" +
			"Both are files of `ig-gpu run cuda_alloc --pprof-out`. Processes are not distinguished, so that a\n" +
			"restarted server, or another replica, can be compared.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			libraries, err := library.Parse(paths)
			if err != nil {
				return fmt.Errorf("--library-paths: %w", err)
			}
			before, err := readProfile(args[0], libraries)
			if err != nil {
				return err
			}
			after, err := readProfile(args[1], libraries)
			if err != nil {
				return err
			}
			if page != "" {
				title := "GPU memory: " + args[1] + " against " + args[0]
				if err := writePage(page, flamegraph.Page{Title: title, Profile: after, Base: before}); err != nil {
					return err
				}
			}
			return difference.Write(cmd.OutOrStdout(), profile.Diff(before, after), difference.Options{Limit: limit, Hint: ": --max-entries 0 shows them"})
		},
	}
	cmd.Flags().IntVar(&limit, "max-entries", 20, "Number of lines to show, by largest change; 0 for all")
	cmd.Flags().StringVar(&page, "flamegraph-out", "", "Also write the comparison as a flame graph (HTML)")
	addLibraryPaths(cmd, &paths)
	return cmd
}

func addLibraryPaths(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "library-paths", "", "Regular expression of the Python files that are not the program's own; "+
		"with + in front, in addition to the standard library and installed packages")
}

// readProfile reads a file of --pprof-out. Frames of libraries are marked.
func readProfile(path string, libraries library.Paths) (*profile.Profile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	defer file.Close()
	p, err := pprof.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("read profile %s: %w", path, err)
	}
	for _, r := range p.Rows {
		libraries.Mark(r.Stack)
	}
	return p, nil
}

func writePage(path string, page flamegraph.Page) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write flame graph: %w", err)
	}
	if err := flamegraph.Write(file, page); err != nil {
		file.Close()
		return fmt.Errorf("write flame graph %s: %w", path, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write flame graph %s: %w", path, err)
	}
	return nil
}
