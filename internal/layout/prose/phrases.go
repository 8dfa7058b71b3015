// SPDX-License-Identifier: Apache-2.0

package prose

import "regexp"

// Phrase is wording that the project does not use, and what to write instead.
type Phrase struct {
	Pattern *regexp.Regexp
	// Suggestion is the wording of our field for the same thing.
	Suggestion string
	// Except matches around a finding where the same words are right, nil: nowhere. It is
	// compared with the whole paragraph, at the place of the finding.
	Except *regexp.Regexp
	// Example is a sentence that the pattern finds: the test of the list.
	Example string
}

// phrase compiles one line of the list. Words are matched in any case.
func phrase(pattern, suggestion, example string, except ...string) Phrase {
	p := Phrase{Pattern: regexp.MustCompile(`(?i)` + pattern), Suggestion: suggestion, Example: example}
	if len(except) > 0 {
		p.Except = regexp.MustCompile(`(?i)` + except[0])
	}
	return p
}

// Phrases is the list. A new entry needs an example; an exception needs its reason here.
func Phrases() []Phrase {
	return []Phrase{
		// Statistics: a call is not "drawn". The timeline, the flame graph and the view of a
		// terminal draw on a screen, and NVML's power is what the board draws.
		phrase(`\bdrawn\b`, "sampled", "one call in so many is drawn",
			`drawn (?:by the board|by a script|as one|over|or not)|slice as it is drawn|which the view is drawn|call is drawn on|both are drawn`),
		phrase(`\bpatience\b`, "grace period, timeout", "the patience is 5 s"),

		// Who reports what.
		phrase(`\b(?:is|are|was|were|be|been) told\b`, "is reported, is notified; is known", "what it is told",
			`told apart`),
		phrase(`\btold (?:of|about)\b`, "reported; notified of", "containers are still told of"),
		phrase(`\btell(?:s|ing)?(?: \w+)? of\b`, "reports; notifies X of", "it tells ig of new containers"),
		phrase(`\b(?:is|are|was|were|be|been) said\b`, "is reported, is logged, is documented", "what was left out is said"),
		phrase(`\bsays? so\b`, "reports it, logs it, marks it", "the stack lacks a line and says so"),
		phrase(`\bfor people\b`, "human-readable", "the size for people"),
		phrase(`\bknown of\b`, "known about", "what is known of stacks"),

		// What is missing.
		phrase(`\bcan lack\b`, "can be missing from; limits", "what a stack can lack"),
		phrase(`\b(?:does|do|did|has|have) not come\b`, "is missing, has not arrived", "rank 1 does not come"),
		phrase(`\b(?:has|have|had) come\b`, "has arrived, has joined", "it knows who has come", `come (?:from|out|up|back)\b`),
		phrase(`\b(?:has|have) gone\b`, "has exited, was removed", "those who have gone"),
		phrase(`\bto be had\b`, "available", "where no source was to be had"),
		phrase(`\bbut for\b`, "except", "not counted, but for X"),
		phrase(`\bnobody\b`, "no process, no rank, nothing, no one", "reads what nobody takes"),
		phrase(`\bsomebody\b`, "a user, a process, another program", "until somebody reads it"),
		phrase(`\beverybody\b`, "every process, all", "everybody waits"),

		// Sentences whose subject is "who …".
		phrase(`(?:^|[.;:,] )who (?:attach|run|start|want|look|deploy|need|ask|know|take|come|set|use|read|compare)(?:e?s)?\b`,
			"if you …; the user who …", "Who attaches late sees less."),
		phrase(`\b(?:is|are|was|were) of (?:who|the|a|an|what|which)\b`, "belongs to, describes, comes from", "the file is of who deploys it",
			`of the (?:same|form|kind|order|CPU)|of a (?:kind|type|version)`),
		phrase(`\bthe same of\b`, "the same for", "the same of launches"),

		// Words that another language has for these.
		phrase(`\bfences?\b`, "security boundary; code block", "it is a filter and no fence"),
		phrase(`\ball day\b`, "continuously", "it runs all day"),
		phrase(`\bsome [0-9]`, "about N", "a row has some 500 bytes"),
		phrase(`\b(?:is|are|was|were|not) tried\b`, "was tested", "other versions are not tried"),
		phrase(`\b(?:is|are|was|were) held to\b`, "is checked against", "rules are held to the same jobs"),
		phrase(`\banew\b`, "again", "it is made anew"),
		phrase(`\b(?:goes|go|went|going) on\b`, "continues", "the run goes on", `what (?:is going|goes) on`),
		phrase(`\bin place of\b`, "instead of", "a clock in place of probes"),
		phrase(`\bstands? (?:there|beside|still)\b`, "is shown; stops", "each row stands there twice"),
		phrase(`\b(?:lies|lie|lay) (?:here|there|beside|where)\b`, "is in, is next to", "it lies beside the binary"),
		phrase(`\bnotes (?:an|the|a|each|its)\b`, "records", "the kernel notes an operation"),
		phrase(`\btakes? (?:it|them|such \w+|rows) away\b`, "removes", "the daemon takes such rows away"),
		phrase(`\bof no importance\b`, "any", "of no importance: it only looks"),
		phrase(`\bthe last word\b`, "decides", "sort has the last word"),
		phrase(`\bas good as\b`, "nearly", "it is as good as free", `as good as (?:the|its|that|any)`),
	}
}
