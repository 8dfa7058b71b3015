// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"errors"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

// AttachPoints reads the gadget's table of functions to probe from its compiled object. A
// gadget without a table is not one of ours: it gives no points and no error. A table of
// another layout is an error.
func AttachPoints(gc Context) ([]attachpoint.Point, error) {
	spec, err := MapSpec(gc, attachpoint.Section)
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	points, err := attachpoint.Parse(spec)
	return slices.DeleteFunc(points, func(p attachpoint.Point) bool { return isSkipped(gc, p.Library) }), err
}
