// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// A name neither ends the element that it is in nor becomes a placeholder of the page.
func FuzzNames(f *testing.F) {
	f.Add("torch", "</script><script>alert(1)</script>")
	f.Add("{{script}}{{data}}", "<!--")
	f.Add("\"><img src=x onerror=alert(1)>", "\u2028]]>\xff")
	f.Fuzz(func(t *testing.T, title, name string) {
		write := func(title string, data any) string {
			var b bytes.Buffer
			if err := Write(&b, Page{Title: title, Body: "<h1>{{title}}</h1>", Scripts: []string{"void 0;\n"}, Data: data}); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		page, plain := write(title, map[string]string{name: name}), write("t", 0)
		for _, tag := range []string{"<", ">"} {
			if strings.Count(page, tag) != strings.Count(plain, tag) {
				t.Fatalf("%q and %q add %q", title, name, tag)
			}
		}
		_, data, _ := strings.Cut(page, `id="data"`)
		_, data, _ = strings.Cut(data, ">")
		data, _, _ = strings.Cut(data, "<")
		if !json.Valid([]byte(data)) {
			t.Fatalf("%q makes the data %q", name, data)
		}
	})
}
