// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

var update = flag.Bool("update", false, "write the table of docs/reference/kernels.md from testdata/results")

const (
	page       = "../../../docs/reference/kernels.md"
	tableBegin = "<!-- table: testdata/results of test/systems/kernels; go test -run TheTable ./test/systems/kernels -update -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// kernelsOfTable are its columns.
var kernelsOfTable = []string{"5.10", "6.1", "6.12", "newest", "arm64-6.1"}

// line is one of the table: a fact of a test.
type line struct{ label, test, fact string }

// lines are the table's lines for each gadget, and for the programs.
func lines(gadgets []string) (all []line) {
	for _, g := range gadgets {
		all = append(all, line{g + ": instructions verified, the largest program's", "TestLoad", g})
	}
	return append(all,
		line{"`ig-gpu` attaches by", "TestLoad", "attaches"},
		line{"`ig-gpu run cuda_alloc`: rows exact by stack", "TestProduct", "rows"},
		line{"rows are exact although this happens", "TestFaults", "faults"},
		line{"`ig-gpu run hip_alloc`: rows exact by stack", "TestHIP", "rows"},
		line{"`ig-gpu run hip_kernel`: calls exact, and with their line", "TestHIP", "calls"},
		line{"native frames have names", "TestNative", "names"},
		line{"a gadget without a variant is refused", "TestRefused", "refused"},
		line{"`ig run cuda_alloc`, signed: rows exact", "TestStock", "rows"},
		line{"… allocations whose stack has its names", "TestStock", "names"},
		line{"… another key", "TestStock", "wrong key"},
		line{"`ig run py_stack`, unsigned and signed", "TestStockPython", "names"},
		line{"`ig run cuda_kernel`, unsigned: calls exact, and with their line", "TestStockLaunches", "unsigned"},
		line{"… signed", "TestStockLaunches", "signed"},
		line{"`ig run hip_alloc`, unsigned: rows exact", "TestStockHIP", "rows"},
		line{"`ig run hip_kernel`, unsigned: calls exact, and with their line", "TestStockHIP", "calls"},
		line{"`ig run nccl_trace`, unsigned: ranks and lines exact", "TestStockRanks", "unsigned"},
		line{"… signed", "TestStockRanks", "signed"},
		line{"`ig`, cuda_alloc unsigned, and `ig-gpu` at once: rows the same to the byte", "TestAgree", "rows"},
		line{"`gpu-exporter` beside `ig daemon`", "TestStockExported", "bytes"},
	)
}

// gadgetsOfList are those of build.yaml that have programs of their own.
func gadgetsOfList(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../../build.yaml")
	require.NoError(t, err)
	var list struct {
		Gadgets []struct{ Name string }
	}
	require.NoError(t, yaml.Unmarshal(text, &list))
	for _, g := range list.Gadgets {
		names = append(names, g.Name)
	}
	require.NotEmpty(t, names)
	return names
}

// makeTable is Markdown.
func makeTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	columns := make([]results, len(kernelsOfTable))
	b.WriteString("| |")
	for i, kernel := range kernelsOfTable {
		columns[i] = readResults(t, kernel)
		name := strings.TrimPrefix(kernel, "arm64-")
		if v := columns[i].Facts["TestLoad"]["kernel"]; v != "" {
			name = v
		}
		if strings.HasPrefix(kernel, "arm64-") {
			name += ", arm64"
		}
		fmt.Fprintf(&b, " %s |", name)
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(kernelsOfTable)) + "|\n")
	for _, l := range lines(gadgetsOfList(t)) {
		fmt.Fprintf(&b, "| %s |", l.label)
		for _, r := range columns {
			cell := r.Facts[l.test][l.fact]
			if cell == "" {
				cell = "–"
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestTheTableOfTheDocsMatchesTheMeasurement: with -update, and after a run on other kernels,
// whose counts are never those of the run before, it writes it.
func TestTheTableOfTheDocsMatchesTheMeasurement(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), tableBegin)
	require.True(t, ok, "%s has no %s", page, tableBegin)
	was, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "%s has no %s", page, tableEnd)
	table := makeTable(t)
	if *update || os.Getenv("KERNELS") != "" {
		require.NoError(t, os.WriteFile(page, []byte(before+tableBegin+table+tableEnd+after), 0o644))
		return
	}
	require.Equal(t, table, was, "go test -run TheTable ./test/systems/kernels -update writes it")
}
