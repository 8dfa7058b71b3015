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

// TestLoad runs in the virtual machine: it loads all programs of the gadget, once
// for each way to attach, and prints what the verifier says.
func TestLoad(t *testing.T) {
	requireInside(t)
	require.NoError(t, rlimit.RemoveMemlock())
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "attached by\tinstructions verified\tlargest program\tms\t")
	for i, name := range []string{"stock ig", "perf", "multi", "multi, spans"} {
		mode := min(i, 2) // enum attach_mode
		spec, err := ebpf.LoadCollectionSpec(os.Getenv(objectVariable))
		require.NoError(t, err)
		if spec.Maps["attach_enter_points"] != nil && name != "stock ig" {
			continue // compiled for kernels that know one way only
		}
		require.NoError(t, spec.Variables["attach_mode"].Set(uint32(mode)))
		if mode < i {
			require.NoError(t, spec.Variables["span_ids"].Set(true))
		}
		v := load(t, spec)
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", name, v.all, v.largest, v.usec/1000)
		// The verifier gives up at a million; leave room for other kernels.
		require.Less(t, v.largest, 500_000)
	}
	table.Flush()
}

// verified is what the verifier says of a collection.
type verified struct {
	all, largest int // instructions, of all programs and of the largest
	usec         int
}

var verifierStats = regexp.MustCompile(`verification time (\d+) usec|processed (\d+) insns`)

func load(t *testing.T, spec *ebpf.CollectionSpec) (v verified) {
	t.Helper()
	options := ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats, LogSizeStart: 1 << 26}}
	coll, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		options.Programs.LogLevel = 0 // a second log then has the verifier's reasoning
		_, err = ebpf.NewCollectionWithOptions(spec, options)
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Fatalf("%v\n%s", err, strings.Join(refused.Log[max(0, len(refused.Log)-200):], "\n"))
		}
	}
	require.NoError(t, err)
	defer coll.Close()
	for _, p := range coll.Programs {
		var usec, insns int
		for _, m := range verifierStats.FindAllStringSubmatch(p.VerifierLog, -1) {
			fmt.Sscan(m[1], &usec)
			fmt.Sscan(m[2], &insns)
		}
		v.all += insns
		v.largest = max(v.largest, insns)
		v.usec += usec
	}
	return v
}
