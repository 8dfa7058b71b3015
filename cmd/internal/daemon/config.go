// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/config"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

// checkConfig refuses keys that our operators do not know: Inspektor Gadget ignores them,
// and a receiver with a misspelt name would get nothing.
func checkConfig(own []operators.DataOperator) error {
	if config.Config == nil {
		return nil
	}
	for _, operator := range own {
		section := config.OperatorKey + "." + operator.Name()
		var known []string
		for _, p := range operator.GlobalParams() {
			known = append(known, strings.ToLower(p.Key))
		}
		var ofRuns []string // `ig-gpu run` reads them in the same file
		for _, p := range operator.InstanceParams() {
			ofRuns = append(ofRuns, strings.ToLower(p.Key))
		}
		for key := range config.Config.GetStringMap(section) {
			if slices.Contains(known, strings.ToLower(key)) || slices.Contains(ofRuns, strings.ToLower(key)) {
				continue
			}
			return fmt.Errorf("configuration: %s.%s is no parameter of the daemon (%s)", section, key, list(known))
		}
	}
	return nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "there is none"
	}
	return "it has " + strings.Join(names, ", ")
}
