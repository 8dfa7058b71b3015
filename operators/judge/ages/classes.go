// SPDX-License-Identifier: Apache-2.0

package ages

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Classes are those of ages (--ages), the youngest first: up to that long, and longer than the
// class before. The last one has no bound.
func Classes() []string { return []string{"1s", "10s", "1m", "10m", "1h", "older"} }

// Field is the field of allocs with the bytes of a class.
func Field(class string) string { return "age_" + class + "_bytes" }

// bounds are those of Classes.
var bounds = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// byClass has bytes in use by class of age.
type byClass [len(bounds) + 1]uint64

func (c *byClass) add(age time.Duration, bytes uint64) {
	n := 0
	for n < len(bounds) && age > bounds[n] {
		n++
	}
	c[n] += bytes
}

// String has the classes that are not empty.
func (c *byClass) String() string {
	var parts []string
	for n, class := range Classes() {
		switch {
		case c[n] == 0:
		case n < len(bounds):
			parts = append(parts, profile.FormatBytes(int64(c[n]))+" <"+class)
		default:
			parts = append(parts, profile.FormatBytes(int64(c[n]))+" "+class)
		}
	}
	return strings.Join(parts, ", ")
}

// classFields write a histogram into a row.
type classFields struct {
	text  datasource.FieldAccessor
	bytes []datasource.FieldAccessor
}

func parseClasses(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("--%s: want true or false, not %q", paramAges, text)
	}
	return on, nil
}

func (f *classFields) add(ds datasource.DataSource) error {
	var err error
	if f.text, err = ds.AddField("ages", api.Kind_String, datasource.WithAnnotations(map[string]string{
		"description":   "What is in use by its age, such as 12.0 MiB <10s, 3.00 GiB older: between that age and the one before (--ages)",
		"columns.width": "40",
	})); err != nil {
		return fmt.Errorf("add field ages to %s: %w", ds.Name(), err)
	}
	for n, class := range Classes() {
		what := "at most " + class + " ago"
		if n > 0 {
			what = "more than " + Classes()[n-1] + " and " + what
		}
		if n == len(bounds) {
			what = "more than " + Classes()[n-1] + " ago"
		}
		field, err := ds.AddField(Field(class), api.Kind_Uint64, datasource.WithAnnotations(map[string]string{
			"description": "Bytes in use that were allocated " + what + " (--ages)", "columns.hidden": "true",
		}))
		if err != nil {
			return fmt.Errorf("add field %s to %s: %w", Field(class), ds.Name(), err)
		}
		f.bytes = append(f.bytes, field)
	}
	return nil
}

func (f *classFields) put(d datasource.Data, c byClass) error {
	errs := []error{f.text.PutString(d, c.String())}
	for n, field := range f.bytes {
		errs = append(errs, field.PutUint64(d, c[n]))
	}
	return errors.Join(errs...)
}
