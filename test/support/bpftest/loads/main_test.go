// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswers(t *testing.T) {
	require.NoError(t, read(strings.NewReader("loaded\n")))
	require.EqualError(t, read(strings.NewReader("load a program: operation not permitted\n")), "load a program: operation not permitted")
	require.ErrorContains(t, read(strings.NewReader("")), "no answer")
}
