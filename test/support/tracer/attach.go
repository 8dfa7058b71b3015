// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"debug/elf"
	"errors"
	"sync"
	"testing"

	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

// AttachTorch attaches to a libc10.so: to those of the functions that it has.
func (tr *Tracer) AttachTorch(library string) {
	tr.t.Helper()
	file, err := link.OpenExecutable(library)
	require.NoError(tr.t, err)
	attached := 0
	for _, p := range tr.sleeping {
		var l link.Link
		if hasMulti() {
			multi := &link.UprobeMultiOptions{Cookies: []uint64{uint64(p.Cookie)}}
			l, err = file.UprobeMulti([]string{p.Symbol}, tr.Programs["torch_enter_multi"], multi)
		} else {
			l, err = file.Uprobe(p.Symbol, tr.Programs["torch_enter_perf"], &link.UprobeOptions{Cookie: uint64(p.Cookie)})
		}
		if errors.Is(err, link.ErrNoSymbol) {
			continue
		}
		tr.keep(l, err)
		attached++
	}
	require.NotZero(tr.t, attached, "%s has none of the functions", library)
}

// hasMulti: else probes are perf events, as those of ig-gpu are (Linux 6.6).
var hasMulti = sync.OnceValue(func() bool { return features.HaveBPFLinkUprobeMulti() == nil })

// Exports returns the symbols of a library: whether it defines them. Libraries above the driver have more in some
// versions.
func Exports(t testing.TB, path string) map[string]bool {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	all := map[string]bool{}
	for _, s := range symbols {
		all[s.Name] = s.Section != elf.SHN_UNDEF
	}
	return all
}

// attach sets the probes of one library.
func (tr *Tracer) attach(path string, points []attachpoint.Point, o Options) {
	tr.t.Helper()
	file, err := link.OpenExecutable(path)
	require.NoError(tr.t, err)
	// Returns first: a call without a return would count as one left by a longjmp.
	if o.Linux510 || o.Stock {
		at := &link.UprobeOptions{Offset: o.Offset}
		for _, p := range points {
			if p.Exit {
				tr.keep(file.Uretprobe(p.Symbol, tr.Programs["stock_exit"], nil))
			}
			tr.keep(file.Uprobe(p.Symbol, tr.Programs["enter_"+p.Symbol], at))
		}
		return
	}
	if !hasMulti() {
		for _, p := range points {
			at := &link.UprobeOptions{Offset: o.Offset, Cookie: uint64(p.Cookie)}
			if p.Exit {
				tr.keep(file.Uretprobe(p.Symbol, tr.Programs["call_exit_perf"], at))
			}
			tr.keep(file.Uprobe(p.Symbol, tr.Programs["call_enter_perf"], at))
		}
		return
	}
	var entries, returns []string
	multi := &link.UprobeMultiOptions{}
	for _, p := range points {
		entries = append(entries, p.Symbol)
		multi.Cookies = append(multi.Cookies, uint64(p.Cookie))
		multi.Offsets = append(multi.Offsets, o.Offset)
		if p.Exit {
			returns = append(returns, p.Symbol)
		}
	}
	if len(returns) > 0 {
		tr.keep(file.UretprobeMulti(returns, tr.Programs["call_exit_multi"],
			&link.UprobeMultiOptions{Offsets: multi.Offsets[:len(returns)]}))
	}
	tr.keep(file.UprobeMulti(entries, tr.Programs["call_enter_multi"], multi))
}
