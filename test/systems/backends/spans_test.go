// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestPyroscopeHasTheBytesOfEachSpan: queried for a span, as Grafana does from a trace,
// it answers with the span's bytes in the driver's journal, and it has no series per
// span.
func TestPyroscopeHasTheBytesOfEachSpan(t *testing.T) {
	for name, c := range map[string]struct {
		flag, profileType string
	}{
		"push.v1": {"--pyroscope-url", "cuda_alloc:alloc_space:bytes:space:bytes"},
		"OTLP":    {"--otlp-endpoint", "cuda_alloc:alloc_space:bytes:cuda_alloc:bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPyroscope(t)
			dir := t.TempDir()
			library := filepath.Join(dir, "libpublisher.so")
			out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, "../../gadgets/spans/testdata/publisher.c").CombinedOutput()
			require.NoError(t, err, string(out))
			cmd := exec.Command("python3", "../../gadgets/spans/testdata/workload.py", built(t, "build/simcuda/libcuda.so.1"), library, "2", "100")
			cmd.Env = append(os.Environ(), "SIMCUDA_JOURNAL="+dir)
			w := subject.Start(t, cmd)
			w.Expect("ready")
			g := trace(t, "cuda_alloc", w.PID(), "--spans", c.flag, p.URL, "--export-interval", "1s")
			w.Say("")
			w.Expect("done")
			journals, err := journal.ReadDir(dir)
			require.NoError(t, err)
			truth, err := journal.Summarize(journals)
			require.NoError(t, err)
			time.Sleep(2 * time.Second) // rows are read each second
			g.end(t)

			require.Contains(t, p.types(t), c.profileType)
			all, spans := int64(0), 0
			for _, k := range truth.Keys() {
				bytes := int64(truth.Rows[k].AllocBytes)
				all += bytes
				if k.Tag == 0 {
					continue
				}
				spans++
				answer, err := p.SelectMergeSpanProfile(t.Context(), connect.NewRequest(&querierv1.SelectMergeSpanProfileRequest{ //nolint:staticcheck // the API of Grafana's data source, which older servers have, too
					ProfileTypeID: c.profileType, LabelSelector: `{service_name="python3"}`, SpanSelector: []string{fmt.Sprintf("%016x", k.Tag)},
					Start: time.Now().Add(-time.Hour).UnixMilli(), End: time.Now().Add(time.Minute).UnixMilli(),
				}))
				require.NoError(t, err)
				require.Equal(t, bytes, answer.Msg.Flamegraph.Total, "span %016x", k.Tag)
			}
			require.Equal(t, 20, spans)
			require.Equal(t, all, sum(p.stored(t, c.profileType, `{service_name="python3"}`)), "with what has no span")
			for _, labels := range p.series(t, `{service_name="python3"}`) {
				require.False(t, strings.Contains(labels, "span") || strings.Contains(labels, "trace"), labels)
			}
		})
	}
}
