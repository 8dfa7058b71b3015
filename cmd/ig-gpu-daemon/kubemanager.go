// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/kubemanager"
)

// containers is Inspektor Gadget's KubeManager, which leaves behind what it has
// subscribed to: in v0.55.0 nothing calls its PostGadgetRun. Each gadget that has ended was
// then notified of containers forever, and its maps stayed. It keeps the name, so registering
// it replaces the original.
type containers struct {
	operators.DataOperator
}

// InstantiateDataOperator implements operators.DataOperator.
func (c containers) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	instance, err := c.DataOperator.InstantiateDataOperator(gc, values)
	if of, ok := instance.(*kubemanager.KubeManagerInstance); ok && of != nil {
		return containersOf{of}, err
	}
	return instance, err
}

// containersOf is the set of containers of one gadget.
type containersOf struct {
	*kubemanager.KubeManagerInstance
}

// Close ends the subscription, too.
func (c containersOf) Close(gc operators.GadgetContext) error {
	return errors.Join(c.PostGadgetRun(), c.KubeManagerInstance.Close(gc))
}
