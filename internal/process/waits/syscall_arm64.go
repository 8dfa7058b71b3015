// SPDX-License-Identifier: Apache-2.0

package waits

// legacyCalls are system calls that only some architectures have: none of them this one.
var legacyCalls = map[int]call{}

var legacyLimits = map[int]func(a [6]uint64) bool{}
