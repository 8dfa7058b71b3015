// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/stretchr/testify/require"
)

// The order, priorities and folders in operators/doc.go.
func TestListOfOperatorsIsTheCodes(t *testing.T) {
	own := Own(Config{})
	slices.SortFunc(own, func(a, b operators.DataOperator) int { // as Inspektor Gadget does
		return cmp.Or(cmp.Compare(a.Priority(), b.Priority()), cmp.Compare(a.Name(), b.Name()))
	})
	var want []string
	for _, o := range own {
		_, folder, _ := strings.Cut(reflect.TypeOf(o).Elem().PkgPath(), "/operators/")
		require.Equal(t, o.Name(), folder[strings.LastIndex(folder, "/")+1:], "the operator is called as its package")
		want = append(want, fmt.Sprintf("%d %s", o.Priority(), folder))
	}

	text, err := os.ReadFile("../../../operators/doc.go")
	require.NoError(t, err)
	var got []string
	for _, line := range regexp.MustCompile(`(?m)^//\t *(-?\d+)  (\w+/\w+) +\S`).FindAllSubmatch(text, -1) {
		got = append(got, fmt.Sprintf("%s %s", line[1], line[2]))
	}
	require.Equal(t, want, got)
}
