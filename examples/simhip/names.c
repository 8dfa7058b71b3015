/* SPDX-License-Identifier: Apache-2.0 */
#include "../../bpf/memory/apis.h"
#include "../../bpf/launch/apis.h"
#include "../simcuda/journal.h"

const char journal_program[] = "simhip";
const char journal_api_names[] = "(none)\0"
#define X(symbol, op, kind, flags, a, b, c) #symbol "\0"
	MEMORY_APIS(X)
#undef X
#define X(symbol, op, detail, flags, a, b) #symbol "\0"
		DRIVER_CALLS(X)
#undef X
#define X(library, symbol, op, a) #symbol "\0"
			LIBRARY_CALLS(X)
#undef X
	;
const uint32_t journal_names_bytes = sizeof(journal_api_names);
const uint32_t journal_api_count = MEMORY_API_COUNT - 1 + CALL_API_COUNT;
_Static_assert(JOURNAL_NAMES + sizeof(journal_api_names) <= JOURNAL_HEADER,
	       "the names fit the header");
