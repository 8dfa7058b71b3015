// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"github.com/stretchr/testify/require"
)

// TestLoad runs in the virtual machine: it loads all programs of each gadget for this
// kernel, once for each way of attaching, and prints the verifier's counts.
func TestLoad(t *testing.T) {
	requireInside(t)
	require.NoError(t, rlimit.RemoveMemlock())
	record(t, "kernel", "%s", kernelVersion(t))
	attaches := "perf events"
	if features.HaveBPFLinkUprobeMulti() == nil {
		attaches = "uprobe_multi"
	}
	record(t, "attaches", "%s", attaches)
	variant := os.Getenv(variantVariable)
	found := 0
	for _, gadget := range gadgetsOfList(t) {
		if strings.HasSuffix(gadget, linux510) != (variant != "") {
			continue
		}
		found++
		t.Run(gadget, func(t *testing.T) {
			largest := 0
			table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(table, "attached by\tinstructions verified\tlargest program\tms\t")
			for _, way := range waysOf(t, object(t, gadget)) {
				v := load(t, way.spec)
				fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", way.name, v.all, v.largest, v.usec/1000)
				largest = max(largest, v.largest)
				// The verifier gives up at a million; leave room for other kernels.
				require.Less(t, v.largest, 500_000)
			}
			table.Flush()
			record(t, gadget, "%d,%03d", largest/1000, largest%1000)
		})
	}
	require.NotZero(t, found)
}

// linux510 ends the name of a variant for kernels before 6.0.
const linux510 = "_linux_5_10"

// object is a gadget's compiled program, as it is in its image.
func object(t *testing.T, gadget string) string {
	t.Helper()
	path := "../../../build/bpf/" + gadget + "/" + runtime.GOARCH + ".bpf.o"
	require.FileExists(t, path)
	return path
}

// debianVersion follows the compiler's version.
var debianVersion = regexp.MustCompile(`#\d.* Debian (\d+\.\d+\.\d+)`)

// kernelVersion is the running kernel's: the release of Debian's has only its own number.
func kernelVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/version")
	require.NoError(t, err)
	m := debianVersion.FindStringSubmatch(string(text))
	require.NotNil(t, m, "%s", text)
	return m[1]
}

// way is how the programs of a gadget may be attached: which of them are whole.
type way struct {
	name string
	spec *ebpf.CollectionSpec
}

// options are off by default: the verifier then does not see their code.
var options = []string{"span_ids", "native_rules", "nccl_owners", "torch_requested"}

func waysOf(t *testing.T, object string) (all []way) {
	t.Helper()
	for i, name := range []string{"stock ig", "perf", "multi", "multi, spans", "multi, rules", "multi, communicators", "multi, requests"} {
		mode := min(i, 2) // enum attach_mode
		spec, err := ebpf.LoadCollectionSpec(object)
		require.NoError(t, err)
		variable := spec.Variables["attach_mode"]
		if (variable == nil || spec.Maps["attach_enter_points"] != nil) && i > 0 {
			break // compiled for kernels that know one way only, or attached to no library
		}
		if variable != nil {
			require.NoError(t, variable.Set(uint32(mode)))
		}
		if mode < i {
			option := spec.Variables[options[i-mode-1]]
			if option == nil {
				continue
			}
			require.NoError(t, option.Set(true))
		}
		all = append(all, way{name, spec})
	}
	return all
}

// verified returns the verifier's count for a collection.
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
