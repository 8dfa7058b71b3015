// SPDX-License-Identifier: Apache-2.0

// Package operators is the list of the operators that we register with Inspektor Gadget.
// They are grouped in the order in which data passes. A group imports nothing from the
// groups below it.
//
//	attach  which functions are probed in which processes, and what that may cost
//	decode  what comes out of the maps: rows, with names
//	judge   what the rows mean: who leaks, who waits, who held the memory
//	show    tables, files, timelines
//	send    servers: profiles, logs, metrics
//
// Two packages are not operators: decode/rows reads the rows of all gadgets for the
// operators that follow, and send/nvml provides data about the GPUs themselves for
// metrics and files.
//
// All operators, in the order in which Inspektor Gadget instantiates, prepares and starts
// them: by priority, then by name. It stops them in the opposite order. Its own operators
// run in between: the gadget is loaded at -1000, containers are known from -1 on, filter is
// at 9000, sort at 9500, limiter at 9600, otel-metrics at 9995, the command line at 10000.
//
//	 -900  decode/mapiter      removes programs that the kernel refuses, before others use them
//	 -160  attach/budget       before torch, which reads the budget of probes
//	 -150  decode/communicators  before attach reads the list of functions
//	 -150  decode/devicetimes  before attach reads the list of probes
//	 -150  judge/torch         before attach reads the list of functions
//	 -101  attach/spans        before attach, so that the first calls find their spans
//	 -101  attach/unwind       before attach, so that rules are loaded from the first calls on
//	 -100  attach/attach       programs are loaded; containers can still be marked as needed
//	 -100  decode/pystack      its fields exist before containers are matched to fields
//	  -90  judge/ranks         likewise
//	   40  judge/holders       before symbolize, which names the holders
//	   40  decode/labels        before those that filter, sort and send by them
//	   40  decode/nccl         after attach, whose rows it reads
//	   50  decode/kernels      before those that filter and sort by the names
//	   50  decode/symbolize    containers are known; before those that filter and sort by the names
//	   60  judge/ages          its fields exist before filter, table and files
//	  100  decode/reap         after those that read the maps
//	 9400  show/table          stacks have names; sort decides the order
//	 9900  decode/drops        any priority: it only reads
//	 9900  judge/ooms          stacks and holders have names
//	 9990  show/sink           just before Inspektor Gadget's exporters
//	 9991  send/export         likewise
//	 9991  send/metrics        likewise
//	 9992  show/live          after sink, whose marks its keys set
//	 9995  show/timeline       after all that add to events
//	10000  show/objects        with ig's own operator that prints: the rows of -o json
//	20000  decode/readings     its Stop runs first, and rows have passed all others
//
// A subscription to data has a priority of its own, a constant of the package. Daemons add
// their backlog (cmd/internal/daemon). A test in cmd/internal/registry compares this list
// with the code, and one in internal/layout holds the rules of the layout.
package operators
