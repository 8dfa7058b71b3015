/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "journal.h"

/* The file grows and is mapped by windows: 32,768 records, 4 MiB. */
#define WINDOW_RECORDS 32768
#define WINDOW_BYTES (WINDOW_RECORDS * sizeof(struct journal_record))

static struct {
	char *dir;
	uint32_t devices;
	uint64_t capacity;
	int fd; /* -1: not open yet */
	bool broken;
	struct journal_header *header;
	struct journal_record *window;
	uint64_t window_index; /* valid while window is not NULL */
} journal = {.fd = -1};

_Static_assert(sizeof(struct journal_header) <= JOURNAL_NAMES, "the names follow the header");

static uint64_t monotonic_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Field 22 of /proc/self/stat. The second field may hold spaces and brackets,
 * so fields are counted from the last closing bracket. 0 if it cannot be read. */
static uint64_t process_start_ticks(void)
{
	char buf[1024];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	buf[n] = 0;
	char *p = strrchr(buf, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

static bool give_up(const char *what)
{
	fprintf(stderr, "%s: journal: %s: %s; later records are lost\n", journal_program, what, strerror(errno));
	journal.broken = true;
	return false;
}

static bool journal_open(void)
{
	char path[PATH_MAX];
	uint64_t start = process_start_ticks();
	uint32_t image = 0;

	/* exec keeps pid and start time: the next free number is the next image. */
	for (;; image++) {
		snprintf(path, sizeof(path), "%s/%d-%llu-%u.journal", journal.dir, getpid(),
			 (unsigned long long)start, image);
		journal.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (journal.fd >= 0)
			break;
		if (errno != EEXIST)
			return give_up(path);
	}
	/* posix_fallocate, not ftruncate: a full disk must be an error here and
	 * not a SIGBUS in the workload later. */
	if ((errno = posix_fallocate(journal.fd, 0, JOURNAL_HEADER)) != 0)
		return give_up("header");
	void *map = mmap(NULL, JOURNAL_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, journal.fd, 0);
	if (map == MAP_FAILED)
		return give_up("map header");

	struct journal_header *h = journal.header = map;
	h->version = 1;
	h->header_size = JOURNAL_HEADER;
	h->record_size = sizeof(struct journal_record);
	h->pid = (uint32_t)getpid();
	h->start_ticks = start;
	h->opened_ns = monotonic_ns();
	h->capacity = journal.capacity;
	h->devices = journal.devices;
	h->image = image;
	h->api_count = journal_api_count;
	prctl(PR_GET_NAME, h->comm);
	memcpy((char *)map + JOURNAL_NAMES, journal_api_names, journal_names_bytes);
	memcpy(h->magic, JOURNAL_MAGIC, sizeof(h->magic));
	return true;
}

/* Which kernels there are, for a reader: records have hashes of names. One file for all
 * processes of the directory, a name a line. */
void journal_kernel(const char *name)
{
	char path[PATH_MAX];

	if (!journal.dir)
		return;
	snprintf(path, sizeof(path), "%s/kernels", journal.dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0 || dprintf(fd, "%s\n", name) < 0)
		give_up(path);
	if (fd >= 0)
		close(fd);
}

static bool map_window(uint64_t index)
{
	off_t at = (off_t)(JOURNAL_HEADER + index * WINDOW_BYTES);

	if (journal.window)
		munmap(journal.window, WINDOW_BYTES);
	journal.window = NULL;
	if ((errno = posix_fallocate(journal.fd, at, WINDOW_BYTES)) != 0)
		return give_up("grow");
	void *map = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, journal.fd, at);
	if (map == MAP_FAILED)
		return give_up("map");
	journal.window = map;
	journal.window_index = index;
	return true;
}

void journal_setup(const char *dir, uint32_t devices, uint64_t capacity)
{
	journal.dir = dir && *dir ? strdup(dir) : NULL;
	journal.devices = devices;
	journal.capacity = capacity;
}

bool journal_on(void)
{
	return journal.dir != NULL;
}

void journal_write(const struct journal_record *r)
{
	if (!journal.dir)
		return;
	if (journal.fd < 0 && !journal.broken)
		journal_open();
	if (!journal.broken) {
		uint64_t at = journal.header->count;
		if (!journal.window || journal.window_index != at / WINDOW_RECORDS)
			map_window(at / WINDOW_RECORDS);
	}
	if (journal.broken) {
		if (journal.header)
			journal.header->lost++;
		return;
	}
	struct journal_record *to = &journal.window[journal.header->count % WINDOW_RECORDS];
	*to = *r;
	to->time_ns = monotonic_ns();
	/* A reader of a living process must never count a record it cannot see. */
	__atomic_store_n(&journal.header->count, journal.header->count + 1, __ATOMIC_RELEASE);
	journal.header->ended = 0;
}

void journal_forked(void)
{
	/* The mappings are the parent's file: drop them without a word in it. */
	if (journal.window)
		munmap(journal.window, WINDOW_BYTES);
	if (journal.header)
		munmap(journal.header, JOURNAL_HEADER);
	if (journal.fd >= 0)
		close(journal.fd);
	journal.window = NULL;
	journal.header = NULL;
	journal.fd = -1;
	journal.broken = false;
}

void journal_flush(void)
{
	if (!journal.header)
		return;
	if (journal.window)
		munmap(journal.window, WINDOW_BYTES);
	journal.window = NULL;
	if (ftruncate(journal.fd, (off_t)(JOURNAL_HEADER +
					  journal.header->count * sizeof(struct journal_record))) == 0)
		journal.header->ended = 1;
}
