// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

// hangs is the data source of verdicts on ranks of NCCL (operators/judge/ranks). A gadget that
// has it has no rows to make profiles of.
const hangs = "hangs"

func (i *instance) subscribeHangs(gc operators.GadgetContext, source datasource.DataSource) error {
	if i.otlp == nil || !i.sendLogs {
		gc.Logger().Warnf("export: verdicts on ranks are sent as logs, to --%s alone", paramOTLP)
		return nil
	}
	verdicts, err := rows.BindHangs(source)
	if err != nil {
		return err
	}
	i.sender, err = newSender(i.settings, SenderConfig{Register: i.cfg.Register, Log: gc.Logger(), Logs: true, NoProfiles: true})
	if err != nil {
		return err
	}
	if err := source.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		h := verdicts.Read(d, time.Now())
		i.mu.Lock()
		defer i.mu.Unlock()
		if !i.ended {
			i.sender.Hang(h)
		}
		return nil // an error would keep the verdict from other subscribers
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", hangs, err)
	}
	return nil
}
