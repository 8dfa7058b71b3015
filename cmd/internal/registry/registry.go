// SPDX-License-Identifier: Apache-2.0

// Package registry is the list of operators that our programs link: Inspektor
// Gadget's, which register themselves when they are imported, and ours, which
// Register registers. A program adds the operator that knows its containers.
package registry

import (
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/formatters"
	ocihandler "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/oci-handler"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
	log "github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/attach"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/budget"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/spans"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/unwind"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/communicators"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/devicetimes"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/drops"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/kernels"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/labels"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/mapiter"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/pystack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/readings"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/reap"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ages"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/holders"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ooms"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/torch"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/export"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/live"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/objects"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/sink"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/table"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/timeline"

	// Those that both ig and its daemon link, so that any gadget that runs there
	// runs here.
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/btfgen"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cgroup"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/ebpf"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/env"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/filter"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/logs"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/otel-profiles"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/process"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/socketenricher"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/sort"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/uidgidresolver"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/ustack"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/wasm"

	// Symbolizers of native stacks for Inspektor Gadget's gadgets. Its third one,
	// pkg/symbolizer/otel, only builds against Inspektor Gadget's patched copy of
	// the OpenTelemetry profiler, which a module replacement would have to force
	// on every program that installs this one.
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/symbolizer/debuginfod"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/symbolizer/symtab"
)

// Config has the differences between the programs.
type Config struct {
	// HasContainers reports whether an operator here can name containers.
	HasContainers func() bool
	// IsDaemon: gadgets are run by remote clients, which must not choose where this
	// machine sends its data. The daemon's own configuration does.
	IsDaemon bool
	// Stacks reads where threads of Python processes are now; may be nil.
	Stacks ranks.Dumper
	// Console is the terminal that a local run was started at; may be nil.
	Console live.Console
}

// daemonBudget is the percent of the traced threads' CPU time that probes may take where
// no user has requested a certain run: docs/performance.md.
const daemonBudget = 1

// Own are the operators of this repository, in the order in which the data
// passes through them. A new operator is one line here.
func Own(cfg Config) []operators.DataOperator {
	percent := 0.0 // interactive use needs all data
	if cfg.IsDaemon {
		percent = daemonBudget
	}
	maps := procmaps.NewCache(procmaps.Config{ProcFS: host.HostProcFs})
	queues, store, progress := &exporters.Registry{}, &metrics.Store{}, &ranks.Store{}
	resolver := symbols.NewResolver(maps)
	maps.OnSnapshot(resolver.Learn)
	rules := unwind.New(unwind.Config{ProcFS: host.HostProcFs, Processes: maps})
	return []operators.DataOperator{
		mapiter.New(),
		spans.New(spans.OperatorConfig{ProcFS: host.HostProcFs, Processes: maps}),
		rules,
		budget.New(budget.Config{Percent: percent}),
		torch.New(torch.Config{ProcFS: host.HostProcFs, Maps: maps}),
		devicetimes.New(),
		communicators.New(),
		attach.New(attach.Config{ProcFS: host.HostProcFs, Maps: maps}),
		pystack.New(pystack.Config{ProcFS: host.HostProcFs}),
		nccl.New(nccl.Config{ProcFS: host.HostProcFs, Maps: maps}),
		ranks.New(ranks.Config{ProcFS: host.HostProcFs, Store: progress, Dump: cfg.Stacks, GPUs: health}),
		holders.NewOperator(),
		labels.New(labels.Config{ProcFS: host.HostProcFs}),
		symbolize.New(resolver),
		ages.New(),
		kernels.New(resolver),
		reap.NewOperator(),
		table.New(table.Config{HasContainers: cfg.HasContainers}),
		sink.New(sink.Config{Driver: driver, Dump: cfg.Stacks, Tenant: maps.Tenant}),
		live.New(live.Config{Console: cfg.Console, Tenant: maps.Tenant}),
		metrics.New(metrics.Config{ProcFS: host.HostProcFs, Queues: queues, Store: store, NVML: gpus(store),
			Driver: counted, Sources: []metrics.Source{progress, rules}}),
		ooms.NewOperator(),
		objects.New(nil),
		export.New(export.Config{Register: export.Publish(queues), GPUs: uuids, IsDaemon: cfg.IsDaemon, Tenant: maps.Tenant}),
		drops.NewOperator(),
		timeline.New(timeline.Config{ProcFS: host.HostProcFs}),
		readings.New(),
	}
}

// Register adds to the operators that the imports above have registered, and returns our
// own. It is called once, before the registry's parameters are read. Registering a name
// again replaces the operator of that name.
func Register(cfg Config) []operators.DataOperator {
	operators.RegisterDataOperator(ocihandler.OciHandler)
	operators.RegisterDataOperator(table.Formats{DataOperator: formatters.FormattersOperator})
	// The operator metrics counts and logs failed pushes itself.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Debugf("OpenTelemetry: %v", err) }))
	own := Own(cfg)
	for _, operator := range own {
		operators.RegisterDataOperator(operator)
	}
	ig.SkipReplacedModules()
	return own
}

// gpus makes the metrics of the GPUs themselves.
func gpus(store *metrics.Store) func(string) metrics.Source {
	return func(path string) metrics.Source {
		return nvml.NewSource(nvml.Config{
			Open: func() (nvml.Library, error) { return library(path) },
			Rows: store.Current, Processes: nvml.ProcFS(host.HostProcFs),
			Info: func(text string) { log.Info(text) },
		})
	}
}

// library opens NVML at path, or where the loader finds it, or Inspektor Gadget's bridge to it, and AMD's driver.
func library(path string) (nvml.Library, error) {
	return nvml.OpenAll(path, nvml.BridgePins(host.HostRoot), nvml.SysFS, host.HostProcFs)
}

// counted makes what the driver of these GPUs counts by process.
func counted(path string) func() map[uint32]int64 {
	return nvml.Memory(func() (nvml.Library, error) { return library(path) })
}

// uuids identify the GPU in profiles.
func uuids() (export.GPUs, error) {
	u, err := nvml.NewUUIDs(func() (nvml.Library, error) { return library("") }, func(text string) { log.Info(text) })
	if err != nil {
		return nil, err
	}
	return u, nil
}

// health follows the GPUs, for verdicts on ranks.
func health() (ranks.GPUs, error) {
	h, err := nvml.NewHealth(func() (nvml.Library, error) { return nvml.Open("") })
	if err != nil {
		return nil, err
	}
	return h, nil
}

// driver is read for --driver-memory of files.
func driver() sink.Driver {
	return nvml.NewFrames(func() (nvml.Library, error) { return library("") }, nvml.ProcFS(host.HostProcFs))
}
