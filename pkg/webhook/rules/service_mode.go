package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// modeAnnotations are those of topology aware routing. The API server wants them to be the same, if there are both.
var modeAnnotations = [...]string{policy.TopologyModeAnnotation, policy.TopologyAwareHintsAnnotation}

// modeValues are the modes that Kubernetes documents, and distributions those of trafficDistribution.
var (
	modeValues    = []string{policy.ModeAuto, policy.ModeAutoLower, policy.ModeDisabled, policy.ModeDisabledLower}
	distributions = []string{policy.PreferSameZone, policy.PreferSameNode, policy.PreferClose}
)

// findModeValues finds topology modes that Kubernetes silently treats as Disabled (SVC008, SVC022). One with a domain before it passes:
// Kubernetes leaves those to others.
func findModeValues(s *subject) []finding {
	var findings []finding
	for _, key := range modeAnnotations {
		value, present := s.Metadata.Annotations[key]
		if !present || slices.Contains(modeValues, value) {
			continue
		}
		if rule, detail := judgeMode(value); rule != "" {
			findings = append(findings, findingOf(rule, errorOf(field.ErrorTypeNotSupported, annotation(key), value, detail), value))
		}
	}
	return findings
}

// judgeMode returns which rule an unknown mode breaks, and what to say.
func judgeMode(value string) (ID, string) {
	if meant := sameWord(value, modeValues); meant != "" {
		return "SVC008", fmt.Sprintf("did you mean %q? Other spellings are treated as Disabled", meant)
	}
	if meant := sameWord(value, distributions); meant != "" {
		return "SVC008", fmt.Sprintf("this is a value of spec.trafficDistribution; remove the annotation, and set trafficDistribution: %s", meant)
	}
	if vendor, name, found := strings.Cut(value, "/"); found && vendor != "" && name != "" {
		return "", ""
	}
	if meant := policy.Suggest(value, policy.ModeAuto, policy.ModeDisabled); meant != "" {
		return "SVC022", fmt.Sprintf("%q is treated as Disabled; did you mean %q?", Cut(value, maxWord), meant)
	}
	return "SVC022", fmt.Sprintf("%q is treated as Disabled; use Auto or Disabled", Cut(value, maxWord))
}

// maxWord is how much of a value a warning repeats, beside its path.
const maxWord = 40

// sameWord returns the known word from which another differs only by case or spaces; empty if there is none.
func sameWord(word string, known []string) string {
	const longest = 64 // of somebody's spaces
	if len(word) > longest {
		return ""
	}
	word = strings.Join(strings.Fields(word), "")
	at := slices.IndexFunc(known, func(other string) bool { return strings.EqualFold(word, other) })
	if at < 0 {
		return ""
	}
	return known[at]
}
