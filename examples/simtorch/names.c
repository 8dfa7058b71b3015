/* SPDX-License-Identifier: Apache-2.0 */
#include "../simcuda/journal.h"

/* The writer's description in the journal; records have no function (api 0). */
const char journal_program[] = "simtorch";
const char journal_api_names[] = "(none)";
const uint32_t journal_names_bytes = sizeof(journal_api_names), journal_api_count = 1;
