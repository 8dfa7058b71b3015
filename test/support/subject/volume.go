// SPDX-License-Identifier: Apache-2.0

package subject

import "os"

// LongVariable is the variable of the environment that gives random suites their long form: make test-long.
const LongVariable = "LONG_TESTS"

// Volume returns how many random calls a suite makes: short in make test, long in make
// test-long.
func Volume(short, long int) int {
	if os.Getenv(LongVariable) != "" {
		return long
	}
	return short
}
