// SPDX-License-Identifier: Apache-2.0

// Command dump prints the journals of a directory: the sums, or with -records
// every record.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
)

func main() {
	records := flag.Bool("records", false, "print every record instead of the sums")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: dump [-records] DIR")
		os.Exit(2)
	}
	if err := dump(flag.Arg(0), *records); err != nil {
		fmt.Fprintln(os.Stderr, "dump:", err)
		os.Exit(1)
	}
}

func dump(dir string, records bool) (err error) {
	all, err := journal.ReadDir(dir)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer func() { err = errors.Join(err, out.Flush()) }()
	if records {
		types := [...]string{"?", "call", "alloc", "free", "implicit"}
		for _, j := range all {
			for _, r := range j.Records {
				fmt.Fprintf(out, "%d/%d %d %-8s %-28s = %-3d %-7s dev %2d ptr %#x size %d tag %d ctx %#x alloc %d cause %d flags %d\n",
					j.PID, r.TID, r.Seq, types[min(int(r.Type), 4)%5], j.APIName(r.API), r.Result, r.Kind, r.Device,
					r.Ptr, r.Size, r.Tag, r.Context, r.AllocSeq, r.Cause, r.Flags)
			}
		}
		return nil
	}
	sum, err := journal.Summarize(all)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "pid\ttag\tkind\tdevice\tin use\tpeak\talloc\tfreed\timplicit\tallocs\tfrees\timplicits\tfailed\tooms\t")
	line := func(pid uint32, tag, kind, device string, s journal.Sums) {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", pid, tag, kind, device,
			s.InUseBytes(), s.PeakBytes, s.AllocBytes, s.FreedBytes, s.ImplicitBytes,
			s.AllocObjects, s.FreedObjects, s.ImplicitObjects, s.Failed, s.OOMs)
	}
	for _, k := range sum.Keys() {
		line(k.Process.PID, fmt.Sprint(k.Tag), k.Kind.String(), fmt.Sprint(k.Device), *sum.Rows[k])
	}
	for _, t := range sum.Totals {
		line(t.Process.PID, "all", "all", "all", t.Sums)
	}
	return w.Flush()
}
