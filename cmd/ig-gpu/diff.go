// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/operators/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/sink/flamegraph"
	"github.com/gpu-gadgets/gpu-gadgets/operators/sink/pprof"
)

// newDiffCommand compares two files of --pprof-out: who took the difference.
func newDiffCommand() *cobra.Command {
	var limit int
	var page string
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Show which lines took the difference between two profiles",
		Long: "Show which lines hold more, or less, GPU memory in the second profile than in the first.\n" +
			"Both are files of `ig-gpu run cuda_alloc --pprof-out`. Processes are not told apart, so that a\n" +
			"restarted server, or another replica, can be compared.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, err := readProfile(args[0])
			if err != nil {
				return err
			}
			after, err := readProfile(args[1])
			if err != nil {
				return err
			}
			if page != "" {
				title := "GPU memory: " + args[1] + " against " + args[0]
				if err := writePage(page, flamegraph.Page{Title: title, Profile: after, Base: before}); err != nil {
					return err
				}
			}
			return printDiff(cmd.OutOrStdout(), profile.Diff(before, after), limit)
		},
	}
	cmd.Flags().IntVar(&limit, "max-entries", 20, "Lines to show, those that changed most; 0 for all")
	cmd.Flags().StringVar(&page, "flamegraph-out", "", "Also write the comparison as a flame graph (HTML)")
	return cmd
}

func readProfile(path string) (*profile.Profile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	defer file.Close()
	p, err := pprof.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("read profile %s: %w", path, err)
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

// printDiff writes the stacks whose in-use bytes changed: first all that grew,
// the most first, then what shrank, and the sum of everything.
func printDiff(w io.Writer, changes profile.Changes, limit int) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "GREW\tBEFORE\tAFTER\tOBJECTS\tDEVICE\tKIND\t FRAME")
	// Tensors lie in memory that is in the driver's rows: there is no sum of both.
	sums := map[profile.Layer]profile.Change{}
	shown, left := 0, 0
	for _, c := range changes {
		layer := profile.LayerOf(c.Kind)
		sum := sums[layer]
		sum.Before, sum.After = sum.Before.Add(c.Before), sum.After.Add(c.After)
		sums[layer] = sum
		if c.Delta(profile.InuseSpace) == 0 && c.Delta(profile.InuseObjects) == 0 {
			continue
		}
		if limit > 0 && shown == limit {
			left++
			continue
		}
		shown++
		device := "unknown"
		if c.Device != profile.UnknownDevice {
			device = strconv.Itoa(int(c.Device))
		}
		printChange(out, c, device, c.Kind, c.Stack.Self().Label())
	}
	tensors, has := sums[profile.Torch]
	if !has {
		printChange(out, sums[profile.Driver], "", "", "(all)")
	} else {
		printChange(out, sums[profile.Driver], "", "", "(all that the driver gave, reserved by the pool)")
		printChange(out, tensors, "", "", "(all that tensors hold of it)")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print difference: %w", err)
	}
	if left > 0 {
		fmt.Fprintf(w, "%d more lines changed: --max-entries 0 shows them\n", left)
	}
	return nil
}

func printChange(w io.Writer, c profile.Change, device, kind, frame string) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%+d\t%s\t%s\t %s\n",
		signed(c.Delta(profile.InuseSpace)), profile.FormatBytes(c.Before.InuseBytes),
		profile.FormatBytes(c.After.InuseBytes), c.Delta(profile.InuseObjects), device, kind, frame)
}

func signed(bytes int64) string {
	if bytes > 0 {
		return "+" + profile.FormatBytes(bytes)
	}
	return profile.FormatBytes(bytes)
}
