// SPDX-License-Identifier: Apache-2.0

package prose

import "path"

// CommentPhrases is the list for comments of code, with the terms that the code uses
// instead. Texts for users may tell, ask or lack something; a comment names the operation.
func CommentPhrases() []Phrase {
	return []Phrase{
		phrase(`\b(?:tells?|telling|told)\b`, "reports, returns, shows, identifies", "it tells whether the kernel has it"),
		phrase(`\b(?:says|tells) (?:whether|how many|which)\b`, "reports whether; returns the number of", "Due says whether the window is over"),
		phrase(`\b(?:nobody|somebody|everybody|whoever)\b`, "no process, a user, all, any rank that", "while nobody reads it"),
		phrase(`\bpatience\b`, "timeout, limit, grace period", "the patience of a test"),
		phrase(`\black(?:s|ing)?\b`, "is missing in, has no", "a stack that lacks frames"),
		phrase(`\blook(?:s|ed)? at\b`, "reads, checks, visits", "the table that is looked at"),
		phrase(`\blooked for\b`, "searched for, expected", "the library that is looked for"),
		phrase(`\b(?:is|are|was|were|be|been) asked\b|\basked for\b`, "is queried; requested", "the driver is asked for it"),
		phrase(`\bwhat is n(?:ot|o)\b`, "other X; X without", "what is not read is dropped"),
		phrase(`^(?:[a-z]\w* )?(?:is|are) what\b`, "name the thing: X has, X is the", "rows are what the gadget counts"),
		phrase(`\bstands? in for\b`, "replaces, simulates", "a function that stands in for it"),
		phrase(`\bhand(?:s|ed)? (?:over|out)\b`, "passes on; allocates, emits", "blocks that are handed out"),
		phrase(`\b(?:taken|takes) (?:back|away)\b`, "freed, removed", "a block is taken back"),
		phrase(`\blets? go of\b`, "closes, releases, drops", "Close lets go of connections"),
		phrase(`\banew\b`, "again", "it is read anew"),
		phrase(`\bto be called\b`, "call it …, must be called", "To be called in Instantiate"),
		phrase(`\bcomes? and go(?:es)?\b`, "start and end, may change at any time", "processes come and go"),
	}
}

// Reworded are the folders whose comments follow CommentPhrases, tests included.
func Reworded() []string {
	return []string{
		"bpf/call", "bpf/cuda", "bpf/hip", "bpf/host", "bpf/launch", "bpf/memory", "bpf/nccl", "bpf/process", "bpf/program", "bpf/python", "bpf/stack", "bpf/torch",
		"cmd", "examples", "gadgets", "internal", "operators", "wasm",
		"test/gadgets/budget", "test/gadgets/devicetimes", "test/gadgets/exact", "test/gadgets/example",
		"test/gadgets/launches", "test/gadgets/mix", "test/gadgets/native", "test/gadgets/nccl", "test/gadgets/pystack", "test/gadgets/pytorch",
		"test/gadgets/spans", "test/gadgets/unwind",
		"test/measure", "test/product", "test/support", "test/systems",
	}
}

// CheckComments is Check for the comments of Go and C alone.
func CheckComments(name, content string, phrases []Phrase) []Finding {
	switch path.Ext(name) {
	case ".go":
		return check(name, paragraphs(goText(content, false)), phrases)
	case ".c", ".h":
		return check(name, paragraphs(cComments(content)), phrases)
	}
	return nil
}
