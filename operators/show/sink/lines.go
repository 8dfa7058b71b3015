// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"fmt"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

func (i *instance) oom(gc operators.GadgetContext, f *rows.OOMs, d datasource.Data) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended || i.json == nil {
		return
	}
	o, err := f.Read(d, i.stacks, time.Now())
	if err != nil {
		gc.Logger().Warnf("sink: %v", err)
	}
	i.wrote(gc, i.json.OOM(o))
	i.flush(gc)
}

// flush makes the lines of an interval visible to who follows the file.
func (i *instance) flush(gc operators.GadgetContext) {
	if i.json != nil {
		i.wrote(gc, i.buffer.Flush())
	}
}

// wrote logs once why the JSON lines end early; the run continues.
func (i *instance) wrote(gc operators.GadgetContext, err error) {
	if err == nil || i.jsonErr != nil {
		return
	}
	i.jsonErr = fmt.Errorf("--%s: %w", paramJSONL, err)
	i.json = nil
	gc.Logger().Errorf("sink: %v; no more lines are written", i.jsonErr)
}
