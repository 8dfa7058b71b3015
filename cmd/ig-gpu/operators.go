// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	ocihandler "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/oci-handler"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
	log "github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/containers"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach"
	"github.com/gpu-gadgets/gpu-gadgets/operators/drops"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export"
	exportqueue "github.com/gpu-gadgets/gpu-gadgets/operators/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/operators/holders"
	"github.com/gpu-gadgets/gpu-gadgets/operators/ig"
	"github.com/gpu-gadgets/gpu-gadgets/operators/lastread"
	"github.com/gpu-gadgets/gpu-gadgets/operators/metrics"
	"github.com/gpu-gadgets/gpu-gadgets/operators/metrics/queue"
	"github.com/gpu-gadgets/gpu-gadgets/operators/nvml"
	"github.com/gpu-gadgets/gpu-gadgets/operators/ooms"
	"github.com/gpu-gadgets/gpu-gadgets/operators/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/operators/pystack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/reap"
	"github.com/gpu-gadgets/gpu-gadgets/operators/sink"
	"github.com/gpu-gadgets/gpu-gadgets/operators/spans"
	"github.com/gpu-gadgets/gpu-gadgets/operators/symbolize"
	"github.com/gpu-gadgets/gpu-gadgets/operators/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/operators/table"

	// Inspektor Gadget's own operators register themselves when imported. These
	// are the ones that ig links, so that any gadget that runs there runs here.
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/btfgen"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cgroup"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/ebpf"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/env"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/filter"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/formatters"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/localmanager"
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
	// on everybody who installs this one.
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/symbolizer/debuginfod"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/symbolizer/symtab"
)

// ownOperators are the operators of this repository, in the order in which the
// data passes through them. A new operator is one line here.
func ownOperators() []operators.DataOperator {
	maps := procmaps.NewCache(procmaps.Config{ProcFS: host.HostProcFs})
	queues, store := &queue.Registry{}, &metrics.Store{}
	return []operators.DataOperator{
		spans.New(spans.OperatorConfig{ProcFS: host.HostProcFs, Processes: maps}),
		attach.New(attach.Config{ProcFS: host.HostProcFs, Maps: maps}),
		pystack.New(pystack.Config{ProcFS: host.HostProcFs}),
		holders.NewOperator(),
		symbolize.New(symbols.NewResolver(maps)),
		reap.NewOperator(),
		table.New(table.Config{HasContainers: containers.HasRuntime}),
		sink.New(sink.Config{Driver: driver}),
		metrics.New(metrics.Config{ProcFS: host.HostProcFs, Queues: queues, Store: store, NVML: gpus(store)}),
		ooms.NewOperator(),
		export.New(export.Config{Register: registerQueue(queues)}),
		drops.NewOperator(),
		lastread.New(),
	}
}

// gpus makes the metrics of the GPUs themselves.
func gpus(store *metrics.Store) func(string) metrics.Source {
	return func(path string) metrics.Source {
		return nvml.NewSource(nvml.Config{
			Open: func() (nvml.Library, error) { return nvml.Open(path) },
			Rows: store.Current, Processes: nvml.ProcFS(host.HostProcFs),
			Info: func(text string) { log.Info(text) },
		})
	}
}

// registerQueue publishes the state of the exporters' queues.
func registerQueue(queues *queue.Registry) func(string, func() exportqueue.Stats) func() {
	return func(name string, stats func() exportqueue.Stats) func() {
		return queues.Add(name, func() queue.Stats {
			s := stats()
			return queue.Stats{
				Items: s.QueuedItems, Bytes: s.QueuedBytes, CapacityBytes: s.CapacityBytes,
				Sent: s.SentItems, Retries: s.Failures, Lost: s.Lost(), LostBytes: s.LostBytes,
			}
		})
	}
}

// driver is what --driver-memory of files asks.
func driver() sink.Driver {
	return nvml.NewFrames(func() (nvml.Library, error) { return nvml.Open("") }, nvml.ProcFS(host.HostProcFs))
}

// registerOperators completes what the imports above have registered. It is
// called once, before the commands are built, because they ask the registry
// for flags. Registering a name again replaces the operator of that name.
func registerOperators() error {
	manager, ok := operators.GetDataOperators()[localmanager.OperatorName]
	if !ok {
		return fmt.Errorf("register operators: Inspektor Gadget has no %s", localmanager.OperatorName)
	}
	operators.RegisterDataOperator(containers.Wrap(manager))
	operators.RegisterDataOperator(ocihandler.OciHandler)
	// The operator metrics counts failed pushes and says so by itself.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Debugf("OpenTelemetry: %v", err) }))
	for _, operator := range ownOperators() {
		operators.RegisterDataOperator(operator)
	}
	ig.SkipReplacedModules()
	return nil
}
