/* SPDX-License-Identifier: Apache-2.0 */
#include "../../bpf/cuda/apis.h"
#include "../simcuda/journal.h"

const char journal_program[] = "simhip";
const char journal_api_names[] = "(none)\0"
#define X(symbol, op, kind, flags, a, b, c) #symbol "\0"
	CUDA_APIS(X)
#undef X
	;
const uint32_t journal_names_bytes = sizeof(journal_api_names);
const uint32_t journal_api_count = CUDA_API_COUNT;
_Static_assert(JOURNAL_NAMES + sizeof(journal_api_names) <= JOURNAL_HEADER,
	       "the names fit the header");
