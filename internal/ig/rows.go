// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"errors"
	"fmt"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
)

// AppendRow appends a row of zeros to the rows that a gadget's programs have written to a
// data source. The array's own New omits the struct that is the programs' part of a row.
func AppendRow(ds datasource.DataSource, to datasource.DataArray) (datasource.Data, error) {
	return newRow(ds, to, nil)
}

// appendRow appends a row in the layout of the gadget's programs.
func appendRow(ds datasource.DataSource, to datasource.DataArray, row []byte) error {
	_, err := newRow(ds, to, row)
	return err
}

// newRow appends a row whose static part is a copy of row, or zeros.
func newRow(ds datasource.DataSource, to datasource.DataArray, row []byte) (datasource.Data, error) {
	packet, ok := to.(datasource.Packet)
	if !ok {
		return nil, errors.New("no packet of Inspektor Gadget's")
	}
	raw, ok := packet.Raw().(*api.GadgetDataArray)
	if !ok {
		return nil, fmt.Errorf("a packet of %T, not of an array", packet.Raw())
	}
	d := to.New()
	to.Append(d)
	payload := raw.DataArray[len(raw.DataArray)-1].Payload
	for _, f := range ds.Fields() {
		if !datasource.FieldFlagStaticMember.In(f.Flags) {
			continue
		}
		if int(f.PayloadIndex) >= len(payload) {
			return nil, fmt.Errorf("data source %s: payload %d of %d", ds.Name(), f.PayloadIndex, len(payload))
		}
		end := int(f.Offs + f.Size)
		if part := &payload[f.PayloadIndex]; len(*part) < end {
			*part = append(make([]byte, 0, max(end, len(row))), row...)
			*part = (*part)[:max(end, len(row))]
		}
	}
	return d, nil
}
