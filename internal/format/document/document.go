// SPDX-License-Identifier: Apache-2.0

// Package document writes a page as one HTML file that needs nothing else: no
// network, no server, no library. Flame graphs and timelines are such pages, with
// the look and the small helpers (text.js) of this one.
//
// The names in their data come from the traced processes and are hostile until
// proven otherwise: they travel as JSON with <, > and & escaped, a page's script
// only ever sets them as text, and its Content-Security-Policy lets no script run
// but ours, by hash, and nothing load from anywhere.
package document

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
)

var (
	//go:embed shell.html
	shell string
	//go:embed style.css
	style string
	//go:embed text.js
	text string
)

// Page has the parts of a document. Body, Style and Scripts are ours; Title and
// Data may hold anything.
type Page struct {
	Title string
	Body  string // HTML; {{title}} stands for the title
	Style string // beside the look that all pages share
	// Scripts run one after the other as one function; they find the data, as JSON,
	// in the element with the id "data".
	Scripts []string
	Data    any
}

// Write writes the page. The same input gives the same bytes.
func Write(w io.Writer, p Page) error {
	encoded, err := json.Marshal(p.Data)
	if err != nil {
		return fmt.Errorf("encode the data of a page: %w", err)
	}
	// One function around everything: the page has no global names.
	script := "(() => {\n\"use strict\";\n" + text + strings.Join(p.Scripts, "") + "})();\n"
	hash := sha256.Sum256([]byte(script))
	title := html.EscapeString(p.Title)
	out := strings.NewReplacer(
		"{{title}}", title,
		"{{script-hash}}", base64.StdEncoding.EncodeToString(hash[:]),
		"{{style}}", style+p.Style,
		"{{body}}", strings.ReplaceAll(p.Body, "{{title}}", title),
		"{{script}}", script,
		// json.Marshal escapes <, > and &, so this cannot end its element.
		"{{data}}", string(encoded),
	).Replace(shell)
	_, err = io.WriteString(w, out)
	return err
}
