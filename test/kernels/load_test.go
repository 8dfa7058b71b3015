// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/stretchr/testify/require"
)

// objectVariable names the compiled gadget to load.
const objectVariable = "GPU_GADGETS_OBJECT"

// TestLoad runs in the virtual machine: it loads all programs of a gadget and
// prints what the verifier says of each. The many thin programs for stock ig
// are one line.
func TestLoad(t *testing.T) {
	path := os.Getenv(objectVariable)
	if path == "" {
		t.Skip(objectVariable + " is empty: this runs in the virtual machine")
	}
	require.NoError(t, rlimit.RemoveMemlock())
	spec, err := ebpf.LoadCollectionSpec(path)
	require.NoError(t, err)
	load := func(level ebpf.LogLevel) (*ebpf.Collection, error) {
		return ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
			Programs: ebpf.ProgramOptions{LogLevel: level, LogSizeStart: 1 << 26},
		})
	}
	coll, err := load(ebpf.LogLevelStats)
	if err != nil {
		_, err = load(0) // then the log has the verifier's reasoning
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Fatalf("%v\n%s", err, strings.Join(refused.Log[max(0, len(refused.Log)-200):], "\n"))
		}
	}
	require.NoError(t, err)
	defer coll.Close()

	stats := regexp.MustCompile(`verification time (\d+) usec|processed (\d+) insns`)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "program\tinstructions verified\tms\t")
	var total [2]int
	for name, p := range coll.Programs {
		var usec, insns int
		for _, m := range stats.FindAllStringSubmatch(p.VerifierLog, -1) {
			fmt.Sscan(m[1], &usec)
			fmt.Sscan(m[2], &insns)
		}
		total[0] += insns
		total[1] += usec
		if insns > 1000 {
			fmt.Fprintf(table, "%s\t%d\t%d\t\n", name, insns, usec/1000)
		}
	}
	fmt.Fprintf(table, "all %d\t%d\t%d\t\n", len(coll.Programs), total[0], total[1]/1000)
	table.Flush()
}
