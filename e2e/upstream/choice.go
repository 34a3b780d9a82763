package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
	"sigs.k8s.io/yaml"
)

//go:embed left-out.yaml
var skippedText []byte

// reason is the reason for which some specs do not run.
type reason struct {
	Reason string   `json:"reason"`
	Specs  []string `json:"specs"` // regular expressions for a spec's whole text
}

// spec is one of Kubernetes' specs.
type spec struct {
	text string
	// serial is set if the spec runs in the second part, with those that take long or disturb others.
	serial bool
	// lab is the kind of lab in which the spec runs.
	lab labKind
}

// labKind is the kind of a lab, by a feature that not every lab has.
type labKind string

const (
	plainLab labKind = "plain"
	// localhost is a lab whose proxy serves node ports on loopback, by a feature gate.
	localhost labKind = "localhost"
	// networkPolicy is a lab in which kube-router enforces NetworkPolicies next to the service proxy.
	networkPolicy labKind = "policed"
)

// labKinds are all kinds, in the order in which they run.
var labKinds = []labKind{plainLab, localhost, networkPolicy}

// labOf returns the kind of lab that a spec needs, according to its text.
func labOf(text string) labKind {
	switch {
	case strings.Contains(text, "[Feature:LocalhostNodePorts]"):
		return localhost
	case strings.Contains(text, "[Feature:NetworkPolicy]"):
		return networkPolicy
	default:
		return plainLab
	}
}

// choice has the [sig-network] specs to run, and the numbers of skipped ones.
type choice struct {
	specs []spec
	// skipped counts the skipped specs, in the order of the reasons.
	skipped []int
}

// choose returns the specs to run, without those that a reason skips. Each pattern must match at least one spec.
func choose(reports []types.SpecReport, reasons []reason) (choice, error) {
	patterns, err := compile(reasons)
	if err != nil {
		return choice{}, err
	}
	chosen := choice{skipped: make([]int, len(reasons))}
	for _, report := range reports {
		if report.LeafNodeType != types.NodeTypeIt || report.State.Is(types.SpecStateSkipped) {
			continue
		}
		text := report.FullText()
		if reason, ok := patterns.match(text); ok {
			chosen.skipped[reason]++
		} else {
			chosen.specs = append(chosen.specs, spec{text: text, serial: runsSerially(report), lab: labOf(text)})
		}
	}
	return chosen, patterns.checkAllMatch()
}

// pattern is one of a reason's patterns.
type pattern struct {
	*regexp.Regexp
	reason  int // its index in the list
	matched bool
}

type patterns []*pattern

func compile(reasons []reason) (patterns, error) {
	var all patterns
	for i, item := range reasons {
		for _, text := range item.Specs {
			compiled, err := regexp.Compile(text)
			if err != nil {
				return nil, fmt.Errorf("compile pattern of skipped specs (%s): %w", item.Reason, err)
			}
			all = append(all, &pattern{Regexp: compiled, reason: i})
		}
	}
	return all, nil
}

// match returns the index of the first reason for skipping a spec, and whether there is one. It evaluates all patterns,
// so that check can report those that match nothing.
func (p patterns) match(text string) (reason int, ok bool) {
	for _, pattern := range p {
		if !pattern.MatchString(text) {
			continue
		}
		pattern.matched = true
		if !ok {
			reason, ok = pattern.reason, true
		}
	}
	return reason, ok
}

func (p patterns) checkAllMatch() error {
	for _, pattern := range p {
		if !pattern.matched {
			return fmt.Errorf("left-out.yaml: %q matches no spec: remove or correct it", pattern)
		}
	}
	return nil
}

// runsSerially reports whether Kubernetes' own jobs run a spec separately from the others.
func runsSerially(report types.SpecReport) bool {
	return slices.ContainsFunc(report.Labels(), func(label string) bool {
		return label == "Serial" || label == "Slow" || label == "Disruptive"
	})
}

// readReasons returns the reasons for skipping specs in left-out.yaml.
func readReasons() ([]reason, error) {
	var reasons []reason
	if err := yaml.UnmarshalStrict(skippedText, &reasons); err != nil {
		return nil, fmt.Errorf("read left-out.yaml: %w", err)
	}
	return reasons, nil
}

// texts returns the specs of one part.
func (c choice) texts(serial bool) []string {
	var texts []string
	for _, s := range c.specs {
		if s.serial == serial {
			texts = append(texts, s.text)
		}
	}
	slices.Sort(texts)
	return texts
}

// matching returns the choice with only those specs that a regular expression matches.
func (c choice) matching(focus *regexp.Regexp) choice {
	c.specs = slices.DeleteFunc(slices.Clone(c.specs), func(s spec) bool { return !focus.MatchString(s.text) })
	return c
}

// inLab returns the choice with only the specs that run in a kind of lab.
func (c choice) inLab(kind labKind) choice {
	c.specs = slices.DeleteFunc(slices.Clone(c.specs), func(s spec) bool { return s.lab != kind })
	return c
}

// skippedCount returns the number of skipped specs.
func (c choice) skippedCount() int {
	sum := 0
	for _, count := range c.skipped {
		sum += count
	}
	return sum
}
