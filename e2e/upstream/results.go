package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// results are the results of specs, by their texts.
type results map[string]string

const passed = "passed"

// resultsOf returns the results of the specs that should run. A spec that is missing from the reports was never
// started, which is a failure, too.
func resultsOf(texts []string, reports []types.SpecReport) results {
	found := results{}
	for _, text := range texts {
		found[text] = "did not run"
	}
	for _, report := range reports {
		text := report.FullText()
		if _, isChosen := found[text]; !isChosen || report.LeafNodeType != types.NodeTypeIt {
			continue
		}
		switch {
		case report.State.Is(types.SpecStatePassed):
			found[text] = passed
		case report.State.Is(types.SpecStateSkipped):
			if message := report.FailureMessage(); message != "" { // without one it was skipped, and should not have been
				found[text] = "skipped itself: " + firstLine(message)
			}
		default:
			found[text] = report.State.String()
		}
	}
	return found
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// summary returns the counts of results, and the specs that did not pass.
func (r results) summary() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d of %d specs passed\n", r.passed(), len(r))
	for _, spec := range slices.Sorted(maps.Keys(r)) {
		if r[spec] != passed {
			fmt.Fprintf(&text, "  %s: %s\n", r[spec], spec)
		}
	}
	return text.String()
}

// passed counts the specs that passed.
func (r results) passed() int {
	count := 0
	for _, result := range r {
		if result == passed {
			count++
		}
	}
	return count
}

// allPassed reports whether nothing failed. A spec that skips itself gives a reason, and is no failure.
func (r results) allPassed() bool {
	for _, result := range r {
		if result != passed && !strings.HasPrefix(result, "skipped itself") {
			return false
		}
	}
	return len(r) > 0
}
