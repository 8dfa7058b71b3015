/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "later.h"

#define BUCKETS 1024

struct item {
	bool (*is_done)(void *);
	void *arg;
	struct lane *after; /* instead: that many of another lane's are done */
	uint64_t number;
	struct item *next;
};

/* The work of one stream: a queue, numbered from 1. */
struct lane {
	uint64_t stream;
	uint64_t issued, done;
	struct item *first, *last;
	bool busy; /* being queried: cycles of lanes that wait for each other end there */
	struct lane *next, *all;
};

struct mark {
	uint64_t event;
	struct lane *lane;
	uint64_t number;
	struct mark *next;
};

static struct {
	pthread_mutex_t lock;
	struct lane *lanes[BUCKETS], *all;
	struct mark *marks[BUCKETS];
} later = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned bucket(uint64_t n)
{
	return (unsigned)((n * 0x9e3779b97f4a7c15ull) >> 54); /* 2^64 / φ; 10 bits */
}

static struct lane *lane_of(uint64_t stream, bool make)
{
	if (stream == 0)
		stream = 1; /* the default stream's two names */
	struct lane **at = &later.lanes[bucket(stream)], *l;
	for (l = *at; l; l = l->next)
		if (l->stream == stream)
			return l;
	if (!make)
		return NULL;
	l = calloc(1, sizeof(*l));
	if (!l)
		abort(); /* a test driver without memory cannot report anything */
	l->stream = stream;
	l->next = *at;
	*at = l;
	l->all = later.all;
	later.all = l;
	return l;
}

/* Removes completed work; returns the progress of the lane. */
static uint64_t advance(struct lane *l)
{
	if (l->busy)
		return l->done;
	l->busy = true;
	while (l->first) {
		struct item *i = l->first;
		if (i->after ? advance(i->after) < i->number : !i->is_done(i->arg))
			break;
		l->first = i->next;
		if (!l->first)
			l->last = NULL;
		free(i);
		l->done++;
	}
	l->busy = false;
	return l->done;
}

static void push(struct lane *l, struct item item)
{
	struct item *i = malloc(sizeof(*i));
	if (!i)
		abort();
	*i = item;
	if (l->last)
		l->last->next = i;
	else
		l->first = i;
	l->last = i;
	l->issued++;
}

/* Until the lane has done `number`; the lock is held, and given away while waiting. */
static bool reached(struct lane *l, uint64_t number, bool wait)
{
	struct timespec pause = {.tv_nsec = 20000};
	while (advance(l) < number) {
		if (!wait)
			return false;
		pthread_mutex_unlock(&later.lock);
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 500000)
			pause.tv_nsec *= 2;
		pthread_mutex_lock(&later.lock);
	}
	return true;
}

void later_add(uint64_t stream, bool (*is_done)(void *), void *arg)
{
	pthread_mutex_lock(&later.lock);
	struct lane *l = lane_of(stream, true);
	advance(l);
	push(l, (struct item){.is_done = is_done, .arg = arg});
	pthread_mutex_unlock(&later.lock);
}

bool later_stream(uint64_t stream, bool wait)
{
	pthread_mutex_lock(&later.lock);
	struct lane *l = lane_of(stream, false);
	bool done = !l || reached(l, l->issued, wait);
	pthread_mutex_unlock(&later.lock);
	return done;
}

bool later_all(bool wait)
{
	bool done = true;
	pthread_mutex_lock(&later.lock);
	for (struct lane *l = later.all; l && done; l = l->all)
		done = reached(l, l->issued, wait);
	pthread_mutex_unlock(&later.lock);
	return done;
}

static struct mark **mark_of(uint64_t event)
{
	struct mark **at = &later.marks[bucket(event)];
	while (*at && (*at)->event != event)
		at = &(*at)->next;
	return at;
}

void later_record(uint64_t event, uint64_t stream)
{
	pthread_mutex_lock(&later.lock);
	struct lane *l = lane_of(stream, false);
	struct mark **at = mark_of(event);
	if (!*at && l) {
		*at = calloc(1, sizeof(**at));
		if (!*at)
			abort();
		(*at)->event = event;
	}
	if (*at) {
		(*at)->lane = l;
		(*at)->number = l ? l->issued : 0;
	}
	pthread_mutex_unlock(&later.lock);
}

bool later_event(uint64_t event, bool wait)
{
	pthread_mutex_lock(&later.lock);
	struct mark *m = *mark_of(event);
	bool done = !m || !m->lane || reached(m->lane, m->number, wait);
	pthread_mutex_unlock(&later.lock);
	return done;
}

void later_forget(uint64_t event)
{
	pthread_mutex_lock(&later.lock);
	struct mark **at = mark_of(event), *m = *at;
	if (m)
		*at = m->next;
	free(m);
	pthread_mutex_unlock(&later.lock);
}

void later_after(uint64_t stream, uint64_t event)
{
	pthread_mutex_lock(&later.lock);
	struct mark *m = *mark_of(event);
	if (m && m->lane && advance(m->lane) < m->number)
		push(lane_of(stream, true), (struct item){.after = m->lane, .number = m->number});
	pthread_mutex_unlock(&later.lock);
}

/* Inherited state is the parent's; it is not freed, because its owner may hold the lock. */
void later_reset(void)
{
	pthread_mutex_init(&later.lock, NULL);
	later.all = NULL;
	for (unsigned i = 0; i < BUCKETS; i++) {
		later.lanes[i] = NULL;
		later.marks[i] = NULL;
	}
}
