// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/localmanager"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/containers"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/registry"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/live"
)

// registerOperators is called once, before the commands are built, because they
// ask the registry for flags. It returns our own operators.
func registerOperators(isDaemon bool, stacks ranks.Dumper, terminal live.Console) ([]operators.DataOperator, error) {
	manager, ok := operators.GetDataOperators()[localmanager.OperatorName]
	if !ok {
		return nil, fmt.Errorf("register operators: Inspektor Gadget has no %s", localmanager.OperatorName)
	}
	operators.RegisterDataOperator(containers.Wrap(manager))
	return registry.Register(registry.Config{HasContainers: containers.HasRuntime, IsDaemon: isDaemon, Stacks: stacks, Console: terminal}), nil
}
