/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_NATIVE_RULES_H
#define GPU_GADGETS_STACK_NATIVE_RULES_H

/* native_rules: which stacks are walked by rules (stack/rules.h). Go mirror:
 * internal/tracer/unwinder. */
enum native_rules {
	NATIVE_RULES_OFF, /* and the maps of rules have 1 entry */
	/* Those without Python frames, also of a pass of autograd. Others have the function and its
	 * caller, which is right without rules: a line whose first stacks had fewer frames than
	 * later ones, because rules are read in between, would have two rows. */
	NATIVE_RULES_WITHOUT_PYTHON,
	NATIVE_RULES_ALL,
};

/*
 * Set by the operator before the programs are loaded, as are the sizes of the maps; off, the
 * verifier removes the walk. ig knows a constant by a second variable with its prefix.
 */
const volatile __u8 native_rules = NATIVE_RULES_OFF;
const volatile __u8 gadget_var_native_rules = NATIVE_RULES_OFF;

#endif
