// SPDX-License-Identifier: Apache-2.0
//
// The one part of a publisher of OpenTelemetry's thread context (OTEP 4947) that Python cannot
// have: the thread-local variable that readers outside of the process look for.

__attribute__((visibility("default"))) __thread void *otel_thread_ctx_v1;

/* Of the calling thread. NULL: no context is attached. */
__attribute__((visibility("default"))) void publish(void *record)
{
	*(void *volatile *)&otel_thread_ctx_v1 = record;
}
