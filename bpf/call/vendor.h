/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_VENDOR_H
#define GPU_GADGETS_CALL_VENDOR_H

/*
 * vendor: whose GPUs a gadget is for. VENDOR is the folder of bpf/ that has the vendor's tables,
 * which the other headers include by VENDOR_TABLE. No other header depends on the vendor: what
 * an operation of a table does is the same for each vendor whose table has it, and a program has
 * no code for operations that its table does not have.
 */
#ifndef VENDOR
#define VENDOR cuda
#endif

/* clang-format off */
#define VENDOR_TABLE(name) VENDOR_TABLE_OF(VENDOR, name)
#define VENDOR_TABLE_OF(vendor, name) VENDOR_TABLE_PATH(../vendor/name)
#define VENDOR_TABLE_PATH(path) #path
/* clang-format on */

#include VENDOR_TABLE(vendor.h)

#endif
