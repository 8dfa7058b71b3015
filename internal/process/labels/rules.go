// SPDX-License-Identifier: Apache-2.0

// Package labels derives labels of a process from what users put there: environment
// variables and the process title, such as a Slurm job, a Ray actor or vLLM's role.
package labels

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Rule is one label: its name, and where its value comes from.
type Rule struct {
	Name string
	// Variable of the environment; empty: Title is used.
	Variable string
	// Title is matched against the process title. The value is the first group, or the
	// whole match where there is none.
	Title *regexp.Regexp
	// Span is an attribute of the span of a trace that the work was done for: rows of one
	// process differ in it.
	Span string
	// Frame is matched against the frames of a row's stack, `qualname (file)`, the outermost first: a
	// server with several models in one process has each in a frame. The value is as of Title.
	Frame *regexp.Regexp
	// Pending are values that a process has before its own is known.
	Pending []string
}

// Rules are those of a run, in the user's order, each name once.
type Rules []Rule

// named are the rules that have a short name.
//
// Titles of Ray's workers: setproctitle in python/ray/_private/worker.py: ray::IDLE, then
// ray::Class.method or ray::Class for actors, ray::function for tasks, and of Ray Serve
// ray::ServeReplica:application:Deployment.method, before 2.7 without an application. Titles of vLLM 0.10:
// VLLM::EngineCore, VLLM::Worker_TP0, VLLM::APIServer_0. Variables of Slurm: srun(1).
var named = map[string]Rules{
	"slurm": {{Name: "slurm_job", Variable: "SLURM_JOB_ID"}, {Name: "slurm_step", Variable: "SLURM_STEP_ID"}},
	"ray":   {{Name: "ray", Title: regexp.MustCompile(`^ray::(?:ServeReplica:(?:[^:]+:)?)?([\w-]+)`), Pending: []string{"IDLE"}}},
	"vllm":  {{Name: "vllm", Title: regexp.MustCompile(`^VLLM::(\w+)`)}},
}

// Names are the short names that Parse knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(named)) }

// OfSpans are the attributes of spans that rules ask for.
func (r Rules) OfSpans() (attributes []string) {
	for _, rule := range r {
		if rule.Span != "" {
			attributes = append(attributes, rule.Span)
		}
	}
	return attributes
}

// HasFrames reports whether a rule is about frames.
func (r Rules) HasFrames() bool {
	return slices.ContainsFunc(r, func(rule Rule) bool { return rule.Frame != nil })
}

// maxRules bounds what each process and each series costs.
const maxRules = 16

var labelName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// reserved are labels that processes, rows and metrics have anyway.
var reserved = []string{"cluster", "node", "namespace", "pod", "container", "device", "gpu", "kind", "pid", "service",
	"service_name", "service_instance_id", "process_pid", "process_comm", "span_id",
	"k8s_pod_name", "k8s_namespace_name", "k8s_container_name", "k8s_node_name", "k8s_cluster_name",
	"k8s_namespace", "k8s_podname", "host_raw", // of --metrics-compat
	"age", "cause", "circle", "communicator", "communicator_name", "destination", "direction", "error_type", "exporter", "gadget",
	"operation", "part", "phase", "rank", "reason", "seq", "source", "state", "type", "waits_for", "xid",
	"gpu_index", "hw_gpu_task", "hw_id", "hw_limit_type", "hw_name", "hw_parent", "hw_sensor_location", "hw_type", "hw_vendor",
	"network_io_direction"}

// Parse reads a comma-separated list of short names (slurm, ray, vllm) and of rules,
// NAME=env:VARIABLE, NAME=title:REGEXP, NAME=frame:REGEXP and NAME=span:ATTRIBUTE. Commas in brackets belong to the expression.
func Parse(text string) (Rules, error) {
	var rules Rules
	for _, entry := range split(text) {
		if more, ok := named[entry]; ok {
			rules = append(rules, more...)
			continue
		}
		rule, err := parseRule(entry)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	if len(rules) > maxRules {
		return nil, fmt.Errorf("%d labels: at most %d", len(rules), maxRules)
	}
	for i, r := range rules {
		if slices.ContainsFunc(rules[:i], func(other Rule) bool { return other.Name == r.Name }) {
			return nil, fmt.Errorf("label %s appears twice", r.Name)
		}
	}
	return rules, nil
}

func parseRule(entry string) (Rule, error) {
	name, from, ok := strings.Cut(entry, "=")
	source, value, hasSource := strings.Cut(from, ":")
	if !ok || !hasSource || value == "" {
		return Rule{}, fmt.Errorf("%q: want NAME=env:VARIABLE, NAME=title:REGEXP, NAME=frame:REGEXP, NAME=span:ATTRIBUTE, or one of %s", entry, strings.Join(Names(), ", "))
	}
	if !labelName.MatchString(name) {
		return Rule{}, fmt.Errorf("label %q: want lower-case letters, digits and _, and a letter first", name)
	}
	if slices.Contains(reserved, name) {
		return Rule{}, fmt.Errorf("label %s: processes or metrics have a label of that name already", name)
	}
	switch source {
	case "env":
		if strings.ContainsAny(value, "=\x00") {
			return Rule{}, fmt.Errorf("label %s: %q is no name of an environment variable", name, value)
		}
		return Rule{Name: name, Variable: value}, nil
	case "span":
		return Rule{Name: name, Span: value}, nil
	case "title", "frame":
		expression, err := regexp.Compile(value)
		if err != nil {
			return Rule{}, fmt.Errorf("label %s: %w", name, err)
		}
		if source == "frame" {
			return Rule{Name: name, Frame: expression}, nil
		}
		return Rule{Name: name, Title: expression}, nil
	}
	return Rule{}, fmt.Errorf("label %s: want env:, title:, frame: or span:, not %q", name, source+":")
}

// split cuts at commas outside of brackets.
func split(text string) (entries []string) {
	depth, start := 0, 0
	add := func(entry string) {
		if entry = strings.TrimSpace(entry); entry != "" {
			entries = append(entries, entry)
		}
	}
	for i, c := range text {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth <= 0 {
				add(text[start:i])
				start = i + 1
			}
		}
	}
	add(text[start:])
	return entries
}
