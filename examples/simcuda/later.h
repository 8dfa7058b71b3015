/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMCUDA_LATER_H
#define SIMCUDA_LATER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * later: work on a stream that is done some time after it was issued. The driver has none
 * of its own; libraries above it do (examples/simnccl: a collective is complete when all
 * ranks have arrived). A stream executes its work in order; other work is done at once.
 *
 * It has a lock of its own, never held while is_done() of the work is not, and must be
 * called without the driver's. Waits poll, because they may wait for another process.
 */

/* Puts work on a stream. is_done(arg) is called until it returns true, and then not again. */
void later_add(uint64_t stream, bool (*is_done)(void *), void *arg);

/* Whether all work issued so far is done; with `wait`, they return true once it is. */
bool later_stream(uint64_t stream, bool wait);
bool later_all(bool wait);

/* An event is done once the work on the stream at its recording is. */
void later_record(uint64_t event, uint64_t stream);
bool later_event(uint64_t event, bool wait);
void later_forget(uint64_t event);

/* The stream's next work waits for an event. */
void later_after(uint64_t stream, uint64_t event);

/* The child of a fork has no work. */
void later_reset(void);

#endif
