/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_PEERS_H
#define GPU_GADGETS_NCCL_PEERS_H

#include "nccl/streams.h"

/*
 * peers: how many sends and receives a rank has issued for each of its peers, and how many of them
 * are known to be done. Those of a group do not count if NCCL does not launch it.
 *
 * A group may have more operations than the ring of its communicator: an all-to-all has two for
 * each rank. So which are done is also derived from what each stream is known to have done.
 */
#ifndef MAX_PEERS
#define MAX_PEERS 65536 /* of sends and receives */
#endif
/* What one tenant may have: process/quota.h. */
#define PEERS_OWN (MAX_PEERS / 4)
/* Of one communicator in one group, of sends and receives: an all-to-all of 1,024 ranks. */
#define GROUP_PEERS 2048

struct peer_key {
	__u64 process;
	__u64 serial; /* of the communicator: handles are reused */
	__s32 peer;
	__u32 op; /* NCCL_OP_SEND or NCCL_OP_RECV */
};

/* A peer's operations up to a number; 0: none. The newest was issued then, on that stream. */
struct peer_point {
	__u64 number, stream, boot_ns;
};

struct peer {
	__u64 handle;
	__u64 issued, completed;
	__u64 enter_boot_ns, stream;	    /* of the newest */
	struct peer_point newest;	    /* whose call, or group, has returned */
	struct peer_point awaited;	    /* an older one, for programs that run ahead */
	__u64 group;			    /* newest group with operations for it … */
	__u64 group_issued, group_enter_ns; /* … and issued and enter_boot_ns before that */
	__u64 group_next;		    /* peer_code() of the next one of the group; 0: none */
};

/* Communicator and peer → sends or receives. As communicators_by_handle. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_PEERS);
	__type(key, struct peer_key);
	__type(value, struct peer);
} operations_by_peer SEC(".maps");

static __always_inline struct peer *peer_find(__u64 process, const struct communicator *c,
					      const struct nccl_operation *o)
{
	struct peer_key key = {
		.process = process, .serial = c->serial, .peer = o->peer, .op = o->op
	};

	return bpf_map_lookup_elem(&operations_by_peer, &key);
}

static __noinline struct peer *peer_new(__u64 process, __u64 handle, struct communicator *c,
					struct nccl_operation *o)
{
	struct peer_key key = { .process = process };
	struct peer *p;
	__u32 zero = 0;
	void *unused;

	_Static_assert(sizeof(*p) <= sizeof(*c), "zeroes for both");
	unused = bpf_map_lookup_elem(&communicator_unused, &zero);
	if (!c || !o || !unused)
		return 0;
	key.serial = c->serial;
	key.peer = o->peer;
	key.op = o->op;
	if (!QUOTA_TAKE_OWN(QUOTA_PEERS, PEERS_OWN) ||
	    bpf_map_update_elem(&operations_by_peer, &key, unused, BPF_ANY)) {
		drop(DROP_ROWS_FULL);
		return 0;
	}
	p = bpf_map_lookup_elem(&operations_by_peer, &key);
	if (p)
		p->handle = handle;
	return p;
}

/* A peer and whether it is of receives, as one number, which is not 0. */
static __always_inline __u64 peer_code(const struct nccl_operation *o)
{
	return 1ull << 33 | (__u64)(__u32)o->peer << 1 | (o->op == NCCL_OP_RECV);
}

/* Counts a send to or a receive from a peer. Returns its number, from 1 on; 0: no room. */
static __noinline __u64 peer_count(__u64 process, __u64 handle, struct communicator *c,
				   struct nccl_operation *o)
{
	struct peer *p;

	if (!c || !o)
		return 0;
	p = peer_find(process, c, o);
	if (!p)
		p = peer_new(process, handle, c, o);
	if (!p)
		return 0;
	if (o->group && p->group != o->group) {
		p->group = o->group;
		p->group_issued = p->issued;
		p->group_enter_ns = p->enter_boot_ns;
		p->group_next = c->group_peers;
		c->group_peers = peer_code(o);
	}
	p->enter_boot_ns = o->enter_boot_ns;
	p->stream = o->stream;
	return ++p->issued; /* calls on a communicator are serial */
}

static __always_inline bool peer_point_done(__u64 process, const struct peer_point *at)
{
	struct stream *s = at->number ? stream_find(process, at->stream) : 0;

	return s && at->boot_ns <= s->done_ns;
}

/* How many of its operations are known to be done. */
static __always_inline __u64 peer_completed(__u64 process, const struct peer *p)
{
	__u64 completed = p->completed;

	if (p->awaited.number > completed && peer_point_done(process, &p->awaited))
		completed = p->awaited.number;
	if (p->newest.number > completed && peer_point_done(process, &p->newest))
		completed = p->newest.number;
	return completed;
}

/* The operations that were counted for a peer until now are issued. */
static __always_inline void peer_issued(__u64 process, struct peer *p, __u64 now)
{
	p->completed = peer_completed(process, p);
	p->newest.number = p->issued;
	p->newest.stream = p->stream;
	p->newest.boot_ns = now;
	if (p->awaited.number <= p->completed)
		p->awaited = p->newest;
}

/* The call of a send or receive that is in no group has returned. */
static __noinline int peer_returned(__u64 process, struct communicator *c, struct nccl_operation *o,
				    __u64 now)
{
	struct peer *p;

	if (!c || !o)
		return 0;
	p = peer_find(process, c, o);
	if (p)
		peer_issued(process, p, now);
	return 0;
}

/* A group has ended: its operations for one peer were issued then, or at 0: do not count. Returns
 * the group's next peer. */
__noinline __u64 peer_group_ends(__u64 process, __u64 serial, __u64 code, __u64 issued_ns)
{
	struct peer_key key = { .process = process, .serial = serial, .peer = code >> 1 };
	struct peer *p;

	key.op = code & 1 ? NCCL_OP_RECV : NCCL_OP_SEND;
	p = bpf_map_lookup_elem(&operations_by_peer, &key);
	if (!p)
		return 0;
	if (issued_ns) {
		peer_issued(process, p, issued_ns);
	} else {
		p->issued = p->group_issued;
		p->enter_boot_ns = p->group_enter_ns;
	}
	return p->group_next;
}

/* The same for all peers of a communicator's newest group. */
__noinline int peers_group_ends(__u64 process, __u64 handle, __u64 issued_ns)
{
	struct communicator *c = communicator_find(process, handle);
	__u64 code, serial;

	if (!c)
		return 0;
	code = c->group_peers;
	serial = c->serial;
	for (int i = 0; i < GROUP_PEERS; i++) {
		if (!code)
			return 0;
		code = peer_group_ends(process, serial, code, issued_ns);
	}
	if (code)
		drop(DROP_COMMUNICATORS_FULL);
	return 0;
}

#endif
