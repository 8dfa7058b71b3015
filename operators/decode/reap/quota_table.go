// SPDX-License-Identifier: Apache-2.0

package reap

// quotaSlots and the tables are those of bpf/process/quota.h.
const (
	quotaSlots = 32
	quotaRates = 8
	quotaAll   = 0
)

const (
	quotaStacks = iota
	quotaRows
	quotaLive
	quotaProcesses
	quotaSymbols
	quotaKernels
	quotaUnknown
	quotaTotals
	quotaCommunicators
	quotaOperations
	quotaPeers
	quotaStreams
	quotaContexts
	quotaPrimaries
	quotaHandles
	quotaMappings
	quotaPools
	quotaThreads
	quotaInstances
	quotaSpans
	quotaOwners
	quotaSums
	quotaRules // from here on those of a second
	quotaFunctions
	quotaFacts
	quotaEvents
	quotaOOMs
	quotaPasses
	quotaFailures
)

// quotaTable is a table in which a tenant has a quota.
type quotaTable struct {
	// entries and fate say in a warning what was refused, and what has become of it.
	entries, fate string
	// name is that of the map, if its keys begin with a process, or its values do (processInValue).
	name           string
	processInValue bool
	// Words of the keys that name a stack, or a kernel; 0: none does.
	stackAt, kernelAt int
	// stackInValue: values name stacks anywhere.
	stackInValue bool
	// own is the part of the table that one tenant may have, where there is no common counter; 0: there is one.
	own float64
}

const (
	fateUnknown     = "under [unknown]"
	fateNoRow       = "in no row"
	fateNoName      = "without a name"
	fateNoDevice    = "their device may be unknown"
	fateNotFollowed = "not followed"

	fateNoCommunicator = "counted without their communicator"
)

// quotaTables are those of enum quota_table; what one tenant may have is *_OWN in the programs.
var quotaTables = [quotaSlots]quotaTable{
	quotaStacks:        {entries: "stacks", fate: fateUnknown},
	quotaRows:          {entries: "rows", fate: fateUnknown, name: "rows_by_stack", stackAt: 1, kernelAt: 2},
	quotaLive:          {entries: "pointers", fate: fateUnknown, name: "live_by_pointer", own: 3. / 4},
	quotaProcesses:     {entries: "calls of new processes", fate: fateNoRow},
	quotaSymbols:       {entries: "Python functions", fate: fateNoName},
	quotaKernels:       {entries: "kernels", fate: fateNoName},
	quotaUnknown:       {entries: "rows without a stack", fate: fateNoRow, name: "unknown_rows", kernelAt: 2},
	quotaTotals:        {entries: "calls of a new kind", fate: fateNoRow, name: "totals_by_call", kernelAt: 2},
	quotaCommunicators: {entries: "calls of new communicators", fate: fateNoRow, name: "communicators_by_handle", stackInValue: true, own: 1. / 8},
	quotaOperations:    {entries: "operations of a new kind or size", fate: fateNoRow, name: "operations_by_size", own: 1. / 4},
	quotaPeers:         {entries: "sends to and receives from new peers", fate: fateNoRow, name: "operations_by_peer", own: 1. / 4},
	quotaStreams:       {entries: "calls on new streams", fate: "when their operations are done is not known", name: "streams_by_handle"},
	quotaContexts:      {entries: "contexts", fate: fateNoDevice, name: "device_by_context", own: 3. / 4},
	quotaPrimaries:     {entries: "primary contexts", fate: fateNoDevice, name: "primary_by_device", own: 3. / 4},
	quotaHandles:       {entries: "handles of memory", fate: fateUnknown, name: "handles_by_number", own: 3. / 4},
	quotaMappings:      {entries: "mappings of memory", fate: fateNotFollowed, name: "mappings_by_address", own: 3. / 4},
	quotaPools:         {entries: "PyTorch pools", fate: fateNotFollowed, name: "torch_pools", own: 3. / 4},
	quotaThreads:       {entries: "threads", fate: fateNotFollowed, name: "thread_by_task", processInValue: true, own: 3. / 4},
	quotaInstances:     {entries: "contexts that were destroyed", fate: "what ended with them is shown as held", name: "instances_by_number", own: 3. / 4},
	quotaSpans:         {entries: "rows of spans", fate: "counted without their span", name: "rows_by_span", stackAt: 1, kernelAt: 2},
	quotaOwners:        {entries: "communicators", fate: fateNoCommunicator, name: "owners_by_number", stackInValue: true, own: 3. / 4},
	quotaSums:          {entries: "sums by communicator", fate: fateNoCommunicator, name: "sums_by_communicator", own: 3. / 4},
	quotaRules:         {entries: "pages of unwind rules", fate: "requested later; stacks are cut there"},
	quotaFunctions:     {entries: "new handles of kernels", fate: fateNoName},
	quotaFacts:         {entries: "new streams, events and graphs", fate: fateNotFollowed},
	quotaEvents:        {entries: "new events", fate: "when their operations are done is not known"},
	quotaOOMs:          {entries: "refused allocations", fate: "counted as lost events"},
	quotaPasses:        {entries: "new backward passes", fate: "not attributed to who began them"},
	quotaFailures:      {entries: "allocations that failed, not for lack of memory", fate: "counted as lost events"},
}
