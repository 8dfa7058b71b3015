/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_EVENTS_H
#define GPU_GADGETS_LAUNCH_EVENTS_H

#include "call/error.h"
#include "launch/calls.h"
#include "launch/rows.h"
#include "program/reading_pause.h"
#include "program/ring_wake.h"

/* events: rows and events as user space sees them. */

/* Each sampled call as an event, for timelines. If it is off, the verifier removes the code. */
const volatile bool events = false;
GADGET_PARAM(events);
/* Set by the operator timeline, which needs the events but does not have them printed. */
const volatile bool timeline_events = false;
const volatile bool gadget_var_timeline_events = false;

#define OPERATION_BYTES 12
#define API_BYTES 40
#define DIRECTION_BYTES 8 /* so that the structs have no padding */

static const char operation_names[32][OPERATION_BYTES] = CALL_OPERATION_NAMES;
static const char direction_names[8][DIRECTION_BYTES] = COPY_DIRECTION_NAMES;
static const char operation_kernel[OPERATION_BYTES] = "kernel"; /* not a call: see launch/device_times.h */
static const char operation_unseen[OPERATION_BYTES] = "unseen"; /* the launch was not seen */
static const char operation_captured[OPERATION_BYTES] = CALL_OPERATION_CAPTURED;

static __always_inline void operation_name(char *to, __u32 api, bool captured)
{
	const struct call_api *row = call_api_of(api);

	if (!api)
		bpf_probe_read_kernel(to, OPERATION_BYTES, captured ? operation_unseen : operation_kernel);
	else if (captured)
		bpf_probe_read_kernel(to, OPERATION_BYTES, operation_captured);
	else
		bpf_probe_read_kernel(to, OPERATION_BYTES, operation_names[row->op & 31]);
}

static __always_inline void direction_name(char *to, __u32 direction)
{
	bpf_probe_read_kernel(to, DIRECTION_BYTES, direction_names[direction & 7]);
}

static __always_inline void api_name(char *to, __u32 api)
{
	if (api && api < CALL_API_COUNT)
		bpf_probe_read_kernel_str(to, API_BYTES, attach_points[api - 1].symbol);
}

static const __u16 libraries[CALL_API_SLOTS] = {
#define X(library, symbol, op, a) [API_##symbol] = ERRORS_OF_##library,
	LIBRARY_CALLS(X)
#undef X
};

/* Libraries have result codes of their own. */
static __always_inline enum driver_error call_error(__u32 api, __s32 result)
{
	__u32 library = libraries[api & (CALL_API_SLOTS - 1)];

	return library ? error_of_library(library, result) : (enum driver_error)result;
}

struct call_event {
	gadget_timestamp timestamp_raw; /* of the return */
	__u64 start_boot_ns, end_boot_ns;
	struct gadget_process proc;
	__u64 process;
	__u64 stack_id;
	__u64 function;
	__u64 stream;
	gadget_bytes bytes;
	__u64 nodes;
	__u32 grid_x, grid_y, grid_z;
	__u32 block_x, block_y, block_z;
	__u32 shared_bytes;
	__u32 weight;
	enum driver_error error_raw;
	__s32 status;
	__s32 device;
	char operation[OPERATION_BYTES];
	char api[API_BYTES];
	char direction[DIRECTION_BYTES];
};

GADGET_TRACER_MAP(calls_ring, 4 * 1024 * 1024);
GADGET_TRACER(call_events, calls_ring, call_event);

static __noinline int event_send(struct thread *t, const struct row_key *key, __u64 start,
				 __u64 end, __u32 weight)
{
	const struct call_facts *f;
	struct call_event *e;

	if (!t || !key)
		return 0;
	e = bpf_ringbuf_reserve(&calls_ring, sizeof(*e), 0);
	if (!e) {
		drop(DROP_EVENT_FULL);
		return 0;
	}
	f = &t->call.facts;
	__builtin_memset(e, 0, sizeof(*e));
	e->timestamp_raw = e->end_boot_ns = end;
	e->start_boot_ns = start;
	gadget_process_populate(&e->proc);
	e->process = key->process;
	e->stack_id = key->stack;
	e->function = key->function;
	e->stream = f->stream;
	e->bytes = f->bytes;
	e->nodes = f->nodes;
	e->grid_x = f->shape.grid[0];
	e->grid_y = f->shape.grid[1];
	e->grid_z = f->shape.grid[2];
	e->block_x = f->shape.block[0];
	e->block_y = f->shape.block[1];
	e->block_z = f->shape.block[2];
	e->shared_bytes = f->shape.shared_bytes;
	e->weight = weight;
	e->status = key->result;
	e->device = key->device;
	e->error_raw = call_error(key->api, key->result);
	operation_name(e->operation, key->api, key->captured);
	api_name(e->api, key->api);
	direction_name(e->direction, key->direction);
	ring_submit(&calls_ring, e, timeline_events);
	return 0;
}

/* One row as user space sees it: the data source `calls`. */
struct call {
	struct gadget_process proc;
	__u64 process;
	__u64 stack_id;
	__u64 row;
	char span_id[SPAN_TEXT_BYTES];
	__u64 row_boot_ns;
	__u64 function;
	enum driver_error error_raw;
	__s32 status;
	__s32 device;
	char operation[OPERATION_BYTES];
	char api[API_BYTES];
	char direction[DIRECTION_BYTES];
	__u64 calls;
	__u64 calls_error;
	__u64 sampled;
	gadget_bytes bytes;
	__u64 bytes_error;
	gadget_duration host_ns;
	__u64 host_ns_error;
	gadget_duration device_ns;
	__u64 blocks;
	__u64 threads;
	__u64 nodes;
	__u64 stream;
	__u32 streams;
	__u32 grid_x, grid_y, grid_z;
	__u32 block_x, block_y, block_z;
	__u32 shared_bytes;
	__u32 varies;
	__u32 time_log2[TIME_SLOTS];
};

static __always_inline __u32 ones_of(__u64 x)
{
	x -= (x >> 1) & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (x * 0x0101010101010101ULL) >> 56;
}

/* Two standard deviations. */
static __always_inline __u64 error_of(__u64 square, __u64 unit)
{
	return square ? 2 * sample_root(square) * unit : 0;
}

/* The error of a sum of two values with independent errors. */
static __always_inline __u64 both_errors(__u64 a, __u64 b)
{
	if (!a || !b)
		return a + b;
	if ((a | b) >> 30)
		return a + b; /* at most 1.4 times as much */
	return sample_root(a * a + b * b);
}

/* A row does not fit the stack of an iterator's program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call);
} call_scratch SEC(".maps");

static __always_inline int dump_call(struct bpf_iter__bpf_map_elem *ctx, struct row_key *key,
				     struct row *row, __u64 span, __u64 born_boot_ns)
{
	const struct window_sums *windows;
	struct process *p;
	struct call *c;
	__u32 zero = 0;

	if (!key || !row || reading_is_paused())
		return 0;
	c = bpf_map_lookup_elem(&call_scratch, &zero);
	if (!c)
		return 0;
	__builtin_memset(c, 0, sizeof(*c));
	span_text(c->span_id, span);
	c->row_boot_ns = born_boot_ns;
	c->process = key->process;
	p = bpf_map_lookup_elem(&processes_by_id, &c->process);
	if (p)
		c->proc = p->proc;
	c->stack_id = key->stack;
	c->function = key->function;
	c->row = mix64(key->function ^
		       mix64(((__u64)(__u32)key->result << 32) | (__u32)(__u8)key->device << 24 |
			     (__u32)key->api << 16 | (__u32)key->direction << 8 | key->captured));
	c->device = key->device;
	operation_name(c->operation, key->api, key->captured);
	if (key->api) {
		c->status = key->result;
		c->error_raw = call_error(key->api, key->result);
		api_name(c->api, key->api);
		c->host_ns = row->host_ns;
	} else {
		c->device_ns = row->host_ns;
	}
	direction_name(c->direction, key->direction);
	c->calls = row->calls;
	windows = window_of_row(key);
	c->calls_error = both_errors(error_of(row->calls_error, 1), window_error(windows, WINDOW_CALLS));
	c->sampled = row->sampled;
	c->bytes = row->bytes;
	c->bytes_error = both_errors(error_of(row->bytes_error, SAMPLE_BYTES_UNIT),
				     window_error(windows, WINDOW_BYTES));
	c->host_ns_error = both_errors(error_of(row->ns_error, SAMPLE_NS_UNIT),
				       window_error(windows, WINDOW_NS));
	c->blocks = row->blocks;
	c->threads = row->threads;
	c->nodes = row->nodes;
	c->stream = row->stream;
	c->streams = ones_of(row->streams);
	c->grid_x = row->grid[0];
	c->grid_y = row->grid[1];
	c->grid_z = row->grid[2];
	c->block_x = row->block[0];
	c->block_y = row->block[1];
	c->block_z = row->block[2];
	c->shared_bytes = row->shared_bytes;
	c->varies = row->varies;
	for (int i = 0; i < TIME_SLOTS; i++)
		c->time_log2[i] = row->time[i];
	if (c->calls)
		bpf_seq_write(ctx->meta->seq, c, sizeof(*c));
	return 0;
}

/* Totals of all calls of a kind, sampled or not: the data source `totals`. */
struct call_total {
	struct gadget_process proc;
	__u64 process;
	__u64 function;
	enum driver_error error_raw;
	__s32 status;
	__s32 device;
	char operation[OPERATION_BYTES];
	char api[API_BYTES];
	char direction[DIRECTION_BYTES];
	__u64 calls;
	gadget_bytes bytes;
	gadget_duration host_ns;
	__u64 calls_error;
	__u64 bytes_error;
	__u64 host_ns_error;
};

static __always_inline int dump_total(struct bpf_iter__bpf_map_elem *ctx)
{
	struct row_key *key = ctx->key;
	struct total *total = ctx->value;
	struct call_total c = {};
	const struct window_sums *windows;
	struct process *p;

	if (!key || !total)
		return 0;
	c.process = key->process;
	p = bpf_map_lookup_elem(&processes_by_id, &c.process);
	if (p)
		c.proc = p->proc;
	c.function = key->function;
	c.status = key->result;
	c.device = key->device;
	c.error_raw = call_error(key->api, key->result);
	operation_name(c.operation, key->api, key->captured);
	api_name(c.api, key->api);
	direction_name(c.direction, key->direction);
	c.calls = total->calls;
	c.bytes = total->bytes;
	c.host_ns = total->host_ns;
	windows = window_of_total(key);
	c.calls_error = window_error(windows, WINDOW_CALLS);
	c.bytes_error = window_error(windows, WINDOW_BYTES);
	c.host_ns_error = window_error(windows, WINDOW_NS);
	bpf_seq_write(ctx->meta->seq, &c, sizeof(c));
	return 0;
}

#endif
