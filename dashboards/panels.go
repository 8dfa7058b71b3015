// SPDX-License-Identifier: Apache-2.0

package dashboards

// selected are the pods that the user chose, recorded the rows of the gadgets of the vendors
// that the user chose, device the memory of GPUs only, nodes the machines that the user chose.
const (
	selected = `k8s_cluster_name=~"$cluster",k8s_namespace_name=~"$namespace",k8s_pod_name=~"$pod"`
	recorded = vendor + `,` + selected
	device   = `kind!="host",` + recorded
	nodes    = `k8s_cluster_name=~"$cluster",instance=~"$instance"`
	// gpus are the GPUs of these nodes.
	vendor  = `hw_vendor=~"$vendor"`
	gpus    = vendor + `,` + nodes
	process = "k8s_pod_name, process_comm, process_pid"
	named   = "{{k8s_pod_name}} {{process_comm}}[{{process_pid}}]"
	gpu     = "{{hw_vendor}} GPU {{gpu_index}} {{instance}}"
	// own is the processes that publish our metrics, whatever the job is called.
	own = ` and on (job, instance) count by (job, instance) (gpu_gadgets_rows{` + nodes + `})`
	// sizes are those of the GPUs where the selected pods run, without MIG devices, which
	// are parts of them.
	sizes = `(hw_gpu_memory_limit_bytes{hw_parent="",` + vendor + `} and on (instance) gpu_memory_inuse_bytes{` + recorded + `})`

	// Refused is the query of the annotations: refusals of PyTorch's pools and, in processes without one, of
	// the driver, as in alerts.yaml. After one of the driver, a pool frees what it caches and asks again.
	Refused = `sum by (` + process + `) (increase(gpu_tensor_failures_total{` + recorded + `}[$__rate_interval])) > 0` +
		` or sum by (` + process + `) (increase(gpu_memory_failures_total{` + recorded + `}[$__rate_interval])` +
		` unless on (k8s_cluster_name, job, instance, k8s_node_name, process_pid)` +
		` last_over_time(gpu_tensor_failures_total{` + recorded + `}[$__rate_interval])) > 0`
)

// Rows is the whole dashboard.
func Rows() []Row {
	return []Row{
		holders(),
		growth(),
		reconciliation(),
		flameGraphs(),
		hardware(),
		pools(),
		calls(),
		collectives(),
		cost(),
	}
}

// holders shows what processes hold.
func holders() Row {
	return Row{Title: "Who holds the memory", Panels: []Panel{
		{Title: "In use by pod", Kind: TimeSeries, Unit: "bytes", Width: 12, Stacked: true,
			Description: "Device memory allocated and not freed.",
			Queries: []Query{
				{Expr: `sum by (k8s_namespace_name, k8s_pod_name) (gpu_memory_inuse_bytes{` + device + `})`, Legend: "{{k8s_namespace_name}} {{k8s_pod_name}}"},
				{Expr: `sum(` + sizes + `)`, Legend: "all GPUs of these nodes", Limit: true}}},
		{Title: "Device memory", Kind: TimeSeries, Unit: "bytes", Width: 12,
			Description: "Memory of all processes as the driver counts it, and the size of the memory.",
			Queries: []Query{
				{Expr: `hw_gpu_memory_usage_bytes{` + gpus + `}`, Legend: gpu},
				{Expr: `hw_gpu_memory_limit_bytes{` + gpus + `}`, Legend: gpu + " size", Limit: true}}},
		{Title: "In use by process", Kind: TimeSeries, Unit: "bytes", Width: 12,
			Description: "The ten largest. A process on one device is refused memory at the dashed line, or earlier if it shares the device.",
			Queries: []Query{
				{Expr: `topk(10, sum by (` + process + `) (gpu_memory_inuse_bytes{` + device + `}))`, Legend: named},
				{Expr: `max by (hw_name) (` + sizes + `)`, Legend: "one {{hw_name}}", Limit: true}}},
		{Title: "In use by kind", Kind: TimeSeries, Unit: "bytes", Width: 12, Stacked: true,
			Description: "device, managed, host (pinned), array, vmm (cuMemCreate: PyTorch's expandable segments), pool (stream-ordered).",
			Queries: []Query{
				{Expr: `sum by (kind) (gpu_memory_inuse_bytes{` + recorded + `})`, Legend: "{{kind}}"},
				{Expr: `sum(` + sizes + `)`, Legend: "all GPUs of these nodes", Limit: true}}},
		{Title: "Peak by process", Kind: Table, Unit: "bytes", Width: 12,
			Description: "The highest value of a process since attach, at the times of reading.",
			Queries:     []Query{{Expr: `topk(20, sum by (` + process + `) (gpu_memory_peak_bytes{` + device + `}))`}}},
		{Title: "Growth by process and kind", Kind: Table, Unit: "bytes", Width: 12,
			Description: "In use at the end of the selected time range minus in use at its start. Processes that exited in between have negative values. By line of code: ig-gpu diff of two profiles.",
			Queries:     []Query{{Expr: difference()}}},
	}}
}

// growth shows what is allocated, freed and refused.
func growth() Row {
	return Row{Title: "Where it goes", Panels: []Panel{
		{Title: "Growth", Kind: TimeSeries, Unit: "Bps", Width: 12,
			Description: "Slope of in-use bytes over 10 minutes. A process that stays above zero leaks, or warms up.",
			Queries:     []Query{{Expr: `sum by (` + process + `) (deriv(gpu_memory_inuse_bytes{` + device + `}[10m]))`, Legend: named}}},
		{Title: "Time until full", Kind: TimeSeries, Unit: "s", Width: 12,
			Description: "At the slope of the last 15 minutes; no line while memory does not grow.",
			Queries: []Query{{Expr: `(hw_gpu_memory_limit_bytes{` + gpus + `} - hw_gpu_memory_usage_bytes{` + gpus + `})` +
				` / (deriv(hw_gpu_memory_usage_bytes{` + gpus + `}[15m]) > 0)`, Legend: gpu}}},
		{Title: "Allocated per second", Kind: TimeSeries, Unit: "Bps", Width: 8,
			Queries: []Query{{Expr: `sum by (` + process + `) (rate(gpu_memory_allocated_bytes_total{` + device + `}[$__rate_interval]))`, Legend: named}}},
		{Title: "Freed per second", Kind: TimeSeries, Unit: "Bps", Width: 8,
			Description: "By a call with the pointer, and with the context or the process.",
			Queries: []Query{
				{Expr: `sum by (` + process + `) (rate(gpu_memory_freed_bytes_total{` + device + `}[$__rate_interval]))`, Legend: named},
				{Expr: `sum by (` + process + `) (rate(gpu_memory_implicitly_freed_bytes_total{` + device + `}[$__rate_interval]))`, Legend: named + " implicitly"}}},
		{Title: "Allocations and frees per second", Kind: TimeSeries, Unit: "cps", Width: 8,
			Queries: []Query{
				{Expr: `sum by (` + process + `) (rate(gpu_memory_allocations_total{` + recorded + `}[$__rate_interval]))`, Legend: named + " allocations"},
				{Expr: `sum by (` + process + `) (rate(gpu_memory_frees_total{` + recorded + `}[$__rate_interval]) + rate(gpu_memory_implicit_frees_total{` + recorded + `}[$__rate_interval]))`, Legend: named + " frees"}}},
		{Title: "Refused allocations", Kind: TimeSeries, Unit: "short", Width: 12,
			Queries: []Query{{Expr: `sum by (` + process + `) (increase(gpu_memory_failures_total{` + recorded + `}[$__rate_interval]))`, Legend: named}}},
		{Title: "Bytes refused", Kind: Stat, Unit: "bytes", Width: 12,
			Queries: []Query{{Expr: `sum(increase(gpu_memory_failed_bytes_total{` + recorded + `}[$__range]))`, Legend: "asked for"}}},
	}}
}

// reconciliation shows how rows compare with the driver's numbers.
func reconciliation() Row {
	return Row{Title: "Against the driver's numbers", Panels: []Panel{
		{Title: "Parts of the memory of all processes", Kind: TimeSeries, Unit: "bytes", Width: 12, Stacked: true,
			Description: "stacks: explained by rows. context: the CUDA context and its modules, an estimate. before_attach: in use at attach. The parts add up to the value of nvidia-smi for each process.",
			Queries:     []Query{{Expr: `sum by (part) (gpu_process_memory_parts_bytes{` + selected + `})`, Legend: "{{part}}"}}},
		{Title: "Explained by stacks", Kind: TimeSeries, Unit: "percentunit", Width: 12,
			Queries: []Query{{Expr: `sum by (` + process + `) (gpu_process_memory_parts_bytes{part="stacks",` + selected + `})` +
				` / sum by (` + process + `) (gpu_process_memory_parts_bytes{` + selected + `})`, Legend: named}}},
		{Title: "Processes, as counted by the driver", Kind: Table, Unit: "bytes", Width: 8,
			Queries: []Query{{Expr: `sum by (` + process + `, hw_vendor, gpu_index) (gpu_process_memory_usage_bytes{` + vendor + `,` + selected + `})`}}},
		{Title: "Contexts on devices without work", Kind: Table, Unit: "short", Width: 8,
			Description: "CUDA contexts created since attach on a device that their process does not use, although it works on another: each takes hundreds of MiB. The line: ig-gpu explain.",
			Queries:     []Query{{Expr: `sum by (` + process + `, device) (gpu_context_idle{` + selected + `})`}}},
		{Title: "Processes with a context, and with probes", Kind: TimeSeries, Unit: "short", Width: 8,
			Queries: []Query{
				{Expr: `sum by (instance) (gpu_processes{` + gpus + `})`, Legend: "{{instance}} with a context"},
				{Expr: `sum by (instance) (gpu_gadgets_attached_processes{` + nodes + `})`, Legend: "{{instance}} with probes"}}},
	}}
}

// flameGraphs shows profiles of memory.
func flameGraphs() Row {
	return Row{Title: "Flame graphs", Panels: []Panel{
		{Title: "Allocated", Kind: FlameGraph, Width: 12,
			Description: "Bytes allocated in the selected time range, by stack: who requests memory, and how often. A flow: a range twice as long has about twice as much.",
			Queries:     []Query{{Expr: "cuda_alloc:alloc_space:bytes:space:bytes"}}},
		{Title: "In use", Kind: FlameGraph, Width: 12, LastInterval: true,
			Description: "Bytes allocated and not freed, by stack, as of the last push interval. A level: Pyroscope sums all snapshots of a range, so this panel queries 10 s, ig-gpu's default interval, instead of the selected range. If the selected range is absolute, select one of 10 s.",
			Queries:     []Query{{Expr: "cuda_inuse:inuse_space:bytes:space:bytes"}}},
	}}
}

// hardware shows what NVML reports.
func hardware() Row {
	return Row{Title: "GPUs", Panels: []Panel{
		{Title: "Busy", Kind: TimeSeries, Unit: "percentunit", Width: 8,
			Queries: []Query{
				{Expr: `hw_gpu_utilization_ratio{hw_gpu_task="general",` + gpus + `}`, Legend: gpu},
				{Expr: `gpu_memory_busy_ratio{` + gpus + `}`, Legend: gpu + " memory"}}},
		{Title: "Temperature", Kind: TimeSeries, Unit: "celsius", Width: 8,
			Queries: []Query{
				{Expr: `hw_temperature_celsius{` + gpus + `}`, Legend: gpu + " {{hw_sensor_location}}"},
				{Expr: `hw_temperature_limit_celsius{hw_limit_type="high.degraded",` + gpus + `}`, Legend: gpu + " slows down", Limit: true}}},
		{Title: "Power", Kind: TimeSeries, Unit: "watt", Width: 8,
			Queries: []Query{
				{Expr: `hw_power_watts{` + gpus + `}`, Legend: gpu},
				{Expr: `gpu_power_limit_watts{` + gpus + `}`, Legend: gpu + " limit", Limit: true}}},
		{Title: "Clocks", Kind: TimeSeries, Unit: "hertz", Width: 8,
			Queries: []Query{{Expr: `gpu_clock_hertz{type=~"sm|memory",` + gpus + `}`, Legend: gpu + " {{type}}"}}},
		{Title: "Throttled", Kind: TimeSeries, Unit: "short", Width: 8,
			Description: "1 while clocks are throttled for the reason.",
			Queries:     []Query{{Expr: `gpu_throttled{` + gpus + `}`, Legend: gpu + " {{reason}}"}}},
		{Title: "Errors", Kind: TimeSeries, Unit: "short", Width: 8,
			Queries: []Query{
				{Expr: `increase(hw_errors_total{` + gpus + `}[$__rate_interval])`, Legend: gpu + " ECC {{error_type}}"},
				{Expr: `gpu_xid_errors_total{` + gpus + `}`, Legend: gpu + " Xid {{xid}}"},
				{Expr: `increase(gpu_pcie_replays_total{` + gpus + `}[$__rate_interval])`, Legend: gpu + " PCIe replays"}}},
		{Title: "PCIe", Kind: TimeSeries, Unit: "Bps", Width: 12,
			Queries: []Query{{Expr: `rate(hw_gpu_io_bytes_total{` + gpus + `}[$__rate_interval])`, Legend: gpu + " {{network_io_direction}}"}}},
		{Title: "NVLink", Kind: TimeSeries, Unit: "Bps", Width: 12,
			Queries: []Query{{Expr: `rate(gpu_nvlink_io_bytes_total{` + gpus + `}[$__rate_interval])`, Legend: gpu + " {{network_io_direction}}"}}},
	}}
}

// pools shows PyTorch's caching allocator; see docs/reference/torch.md.
func pools() Row {
	return Row{Title: "PyTorch's pools", Folded: true, Panels: []Panel{
		{Title: "Held by tensors, and reserved", Kind: TimeSeries, Unit: "bytes", Width: 8,
			Description: "Memory allocated by PyTorch's pool (memory_allocated), and reserved from the driver (memory_reserved). In use by pod already contains that memory: never sum them.",
			Queries: []Query{
				{Expr: `sum by (` + process + `, device) (gpu_pool_allocated_bytes{` + recorded + `})`, Legend: named + " device {{device}}"},
				{Expr: `sum by (` + process + `, device) (gpu_pool_reserved_bytes{` + recorded + `})`, Legend: named + " device {{device}} reserved", Limit: true}}},
		{Title: "Reserved and unused", Kind: TimeSeries, Unit: "percentunit", Width: 8,
			Description: "Fraction of the pool's reserved memory that no tensor uses. If it is high and the pool refuses allocations, the pool is fragmented.",
			Queries: []Query{{Expr: `sum by (` + process + `) (gpu_pool_reserved_bytes{` + recorded + `} - gpu_pool_allocated_bytes{` + recorded + `})` +
				` / sum by (` + process + `) (gpu_pool_reserved_bytes{` + recorded + `})`, Legend: named}}},
		{Title: "Lost to rounding and fragmentation", Kind: TimeSeries, Unit: "bytes", Width: 8,
			Description: "Memory of the pool that no tensor uses: added to requests by rounding, and unused in segments that a tensor keeps. Only with --waste; by line: ig-gpu top --waste.",
			Queries: []Query{
				{Expr: `sum by (` + process + `) (gpu_tensor_rounding_bytes{` + recorded + `})`, Legend: named + " rounding"},
				{Expr: `sum by (` + process + `) (gpu_tensor_fragmented_bytes{` + recorded + `})`, Legend: named + " fragmentation"}}},
		{Title: "Growth of tensors", Kind: TimeSeries, Unit: "Bps", Width: 8,
			Description: "Slope of the memory held by tensors over 10 minutes. A leak shows here before the pool has to grow.",
			Queries:     []Query{{Expr: `sum by (` + process + `) (deriv(gpu_tensor_inuse_bytes{` + recorded + `}[10m]))`, Legend: named}}},
		{Title: "Blocks per second", Kind: TimeSeries, Unit: "cps", Width: 8,
			Description: "Allocated blocks; an estimate if blocks are sampled.",
			Queries:     []Query{{Expr: `sum by (` + process + `) (rate(gpu_tensor_allocations_total{` + recorded + `}[$__rate_interval]))`, Legend: named}}},
		{Title: "Refused by the pool", Kind: TimeSeries, Unit: "short", Width: 8,
			Description: "Also of processes that ended with it. ig-gpu run cuda_alloc reports the line, and whether the memory was fragmented or full.",
			Queries:     []Query{{Expr: `sum by (` + process + `) (increase(gpu_tensor_failures_total{` + recorded + `}[$__rate_interval]))`, Legend: named}}},
		{Title: "Tensors allocated", Kind: FlameGraph, Width: 12,
			Description: "Blocks of PyTorch's pool allocated in the selected time range, by stack. A flow.",
			Queries:     []Query{{Expr: "torch_alloc:tensor_alloc_space:bytes:space:bytes"}}},
		{Title: "Tensors in use", Kind: FlameGraph, Width: 12, LastInterval: true,
			Description: "Blocks of PyTorch's pool in use, by stack, as of the last push interval: a level, like In use.",
			Queries:     []Query{{Expr: "torch_inuse:tensor_inuse_space:bytes:space:bytes"}}},
	}}
}

// calls shows the gadget cuda_kernel.
func calls() Row {
	return Row{Title: "Calls of the driver", Folded: true, Panels: []Panel{
		{Title: "Launched per second", Kind: TimeSeries, Unit: "cps", Width: 12,
			Description: "Kernels and graphs that processes launch. By line of code: ig-gpu run cuda_kernel.",
			Queries:     []Query{{Expr: `sum by (` + process + `, operation) (rate(gpu_launches_total{` + recorded + `}[$__rate_interval]))`, Legend: named + " {{operation}}"}}},
		{Title: "Time spent waiting", Kind: TimeSeries, Unit: "percentunit", Width: 12,
			Description: "For a device, a stream, an event or a copy that waits. 1 is one thread that does nothing but wait. If this is low and the GPU is not busy either, launching is the bottleneck.",
			Queries: []Query{
				{Expr: `sum by (` + process + `) (rate(gpu_waits_time_seconds_total{` + recorded + `}[$__rate_interval]))`, Legend: named}}},
		{Title: "Kernels on the GPU", Kind: TimeSeries, Unit: "percentunit", Width: 12,
			Description: "Run time of kernels, if a library with CUPTI in the process reports it (--device-times). 1 is one stream that is always busy.",
			Queries:     []Query{{Expr: `sum by (` + process + `, device) (rate(gpu_kernels_time_seconds_total{` + recorded + `}[$__rate_interval]))`, Legend: named + " GPU {{device}}"}}},
		{Title: "Copied per second", Kind: TimeSeries, Unit: "Bps", Width: 12, Stacked: true,
			Queries: []Query{{Expr: `sum by (direction) (rate(gpu_copied_bytes_total{` + recorded + `}[$__rate_interval]))`, Legend: "{{direction}}"}}},
		{Title: "Calls per second", Kind: TimeSeries, Unit: "cps", Width: 12, Stacked: true,
			Description: "By operation; library: cuBLAS and cuDNN, whose driver calls are also counted.",
			Queries:     []Query{{Expr: `sum by (operation) (rate(gpu_calls_total{` + recorded + `}[$__rate_interval]))`, Legend: "{{operation}}"}}},
		{Title: "Most launches", Kind: Table, Unit: "short", Width: 12,
			Description: "In the selected time range.",
			Queries:     []Query{{Expr: `topk(20, sum by (` + process + `) (increase(gpu_launches_total{` + recorded + `}[$__range])))`}}},
		{Title: "Launches", Kind: FlameGraph, Width: 12,
			Description: "Kernels and graphs launched in the selected time range, by stack, with the kernel as the leaf. A flow.",
			Queries:     []Query{{Expr: "cuda_calls:launches:count:host:nanoseconds"}}},
		{Title: "Waits", Kind: FlameGraph, Width: 12,
			Description: "Time that threads waited for a device, a stream, an event or a copy, by stack. A flow.",
			Queries:     []Query{{Expr: "cuda_calls:wait:nanoseconds:host:nanoseconds"}}},
		{Title: "Time on the GPU", Kind: FlameGraph, Width: 12,
			Description: "Run time of kernels, by the stack that launched them, with the kernel as the leaf (--device-times). A flow.",
			Queries:     []Query{{Expr: "cuda_device:device:nanoseconds:device:nanoseconds"}}},
		{Title: "Calls that failed", Kind: TimeSeries, Unit: "short", Width: 12,
			Description: "ig-gpu run cuda_kernel shows the error and the line of each.",
			Queries:     []Query{{Expr: failed(), Legend: named}}},
	}}
}

// collectives shows the gadget nccl_trace and the rules in nccl.yaml.
func collectives() Row {
	return Row{Title: "Collectives of NCCL", Folded: true, Panels: []Panel{
		{Title: "Ranks that others wait for", Kind: Table, Unit: "s", Width: 12,
			Description: "Ranks at fault as judged by their own node, and how long others have waited. Over all nodes: the alerts of dashboards/nccl.yaml.",
			Queries:     []Query{{Expr: `sum by (reason, communicator_name, communicator, rank, ` + process + `) (nccl_verdict_waited_seconds{` + selected + `})`}}},
		{Title: "Collectives per second", Kind: TimeSeries, Unit: "cps", Width: 12,
			Description: "By rank. In a healthy job the lines coincide.",
			Queries:     []Query{{Expr: `sum by (communicator_name, rank) (rate(nccl_rank_issued_total{` + selected + `}[$__rate_interval]))`, Legend: "{{communicator_name}} rank {{rank}}"}}},
		{Title: "Behind the first rank", Kind: TimeSeries, Unit: "short", Width: 8,
			Description: "Collectives that others have issued and this rank has not.",
			Queries: []Query{{Expr: `max by (communicator, communicator_name) (nccl_rank_issued_total{` + selected + `}) - on (communicator) group_right () max by (communicator, communicator_name, rank) (nccl_rank_issued_total{` + selected + `})`,
				Legend: "{{communicator_name}} rank {{rank}}"}}},
		{Title: "Iteration time", Kind: TimeSeries, Unit: "s", Width: 8,
			Description: "Of one rank of each communicator: the period of its collectives. ig-gpu hangs says since which step it is slow.",
			Queries:     []Query{{Expr: `max by (communicator_name, rank) (nccl_iteration_seconds{` + selected + `})`, Legend: "{{communicator_name}} rank {{rank}}"}}},
		{Title: "Since the newest collective", Kind: TimeSeries, Unit: "s", Width: 8,
			Description: "By rank. A checkpoint shows as a peak, a hang as a line that keeps rising.",
			Queries:     []Query{{Expr: `time() - max by (communicator_name, rank) (nccl_rank_issued_time_seconds{` + selected + `})`, Legend: "{{communicator_name}} rank {{rank}}"}}},
		{Title: "Memory of communicators", Kind: TimeSeries, Unit: "bytes", Width: 12, Stacked: true,
			Description: "What NCCL holds, with cuda_alloc --communicators on. In use by pod already contains that memory: never sum them.",
			Queries:     []Query{{Expr: `sum by (communicator, communicator_name, ` + process + `, device) (gpu_communicator_inuse_bytes{` + recorded + `})`, Legend: named + " {{communicator_name}} {{communicator}}"}}},
	}}
}

// cost shows ig-gpu itself.
func cost() Row {
	return Row{Title: "What this costs, and what was lost", Panels: []Panel{
		{Title: "CPU of ig-gpu", Kind: TimeSeries, Unit: "percentunit", Width: 8,
			Description: "1 is one core.",
			Queries:     []Query{{Expr: `rate(process_cpu_seconds_total[$__rate_interval])` + own, Legend: "{{instance}}"}}},
		{Title: "Memory of ig-gpu", Kind: TimeSeries, Unit: "bytes", Width: 8,
			Queries: []Query{{Expr: `process_resident_memory_bytes` + own, Legend: "{{instance}}"}}},
		{Title: "Not fully recorded", Kind: TimeSeries, Unit: "short", Width: 8,
			Queries: []Query{{Expr: `sum by (gadget, reason) (increase(gpu_gadgets_drops_total{` + nodes + `}[$__rate_interval]))`, Legend: "{{gadget}} {{reason}}"}}},
		{Title: "Bytes in no row", Kind: TimeSeries, Unit: "bytes", Width: 8,
			Description: "The sums of the rows are too low by these bytes.",
			Queries:     []Query{{Expr: `sum by (gadget, reason) (increase(gpu_gadgets_dropped_bytes_total{` + nodes + `}[$__rate_interval]))`, Legend: "{{gadget}} {{reason}}"}}},
		{Title: "Queued for export", Kind: TimeSeries, Unit: "bytes", Width: 8,
			Queries: []Query{
				{Expr: `gpu_gadgets_export_queue_size_bytes{` + nodes + `}`, Legend: "{{exporter}} {{instance}}"},
				{Expr: `gpu_gadgets_export_queue_capacity_bytes{` + nodes + `}`, Legend: "{{exporter}} {{instance}} at most", Limit: true}}},
		{Title: "Sent, retried, lost", Kind: TimeSeries, Unit: "short", Width: 8,
			Queries: []Query{
				{Expr: `sum by (exporter) (increase(gpu_gadgets_export_sent_total{` + nodes + `}[$__rate_interval]))`, Legend: "{{exporter}} sent"},
				{Expr: `sum by (exporter) (increase(gpu_gadgets_export_retries_total{` + nodes + `}[$__rate_interval]))`, Legend: "{{exporter}} retried"},
				{Expr: `sum by (exporter) (increase(gpu_gadgets_export_lost_total{` + nodes + `}[$__rate_interval]))`, Legend: "{{exporter}} lost"}}},
	}}
}

// failed is 0 where no call has failed: there is a series of each error only.
func failed() string {
	sum := func(errors string) string {
		return `sum by (` + process + `) (increase(gpu_calls_total{` + errors + selected + `}[$__rate_interval]))`
	}
	return sum(`error_type!="",`) + " or 0 * " + sum("")
}

// difference is, by process and kind, what was in use at the end of the range less
// what was in use at its start; a process that was there only once had or has 0.
func difference() string {
	by := "sum by (" + process + ", kind) (gpu_memory_inuse_bytes{" + device + "}"
	now, then := by+")", by+" offset $__range)"
	return "sort_desc((" + now + " - (" + then + " or " + now + " * 0)) or (0 - " + then + "))"
}
