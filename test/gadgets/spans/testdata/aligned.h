/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose thread-local block is aligned more than a pointer. */
__attribute__((used, aligned(256))) static __thread char aligned_block[300];
