// SPDX-License-Identifier: Apache-2.0
//
// What a tracing library does to publish a thread's context by OpenTelemetry's OTEP
// 4947: the variable, which readers outside of the process look for, and a setter.
// BLOCK bytes beside it make the library's thread-local block larger than what glibc
// has in store for libraries that are loaded late.

#ifndef BLOCK
#define BLOCK 8
#endif

__attribute__((visibility("default"))) __thread void *otel_thread_ctx_v1;
static __thread volatile char beside[BLOCK];

__attribute__((visibility("default"))) void publish(void *record)
{
	beside[0] = 1;
	*(void *volatile *)&otel_thread_ctx_v1 = record;
}
