package rules

import (
	"fmt"
	"strings"
	"testing"
)

// serviceWithMistakes returns a Service with that many violations of each of two rules. An API server bounds the total
// size of annotations, but not of labels.
func serviceWithMistakes(mistakes int) *Service {
	service := &Service{Metadata: Metadata{Name: "web", Labels: map[string]string{}}}
	for i := range mistakes {
		service.Metadata.Labels[fmt.Sprintf("vicinity.dev/topology-kexs%05d", i)] = ""
		service.Metadata.Labels[fmt.Sprintf("service.kubernetes.io/topology%05d", i)] = ""
	}
	return service
}

func TestReportedViolationsAreLimited(t *testing.T) {
	got := ReviewService(nil, serviceWithMistakes(10_000), Facts{}, nil)
	if len(got.Denied) != MaxViolations || len(got.Warned) != MaxViolations {
		t.Fatalf("%d denials and %d warnings, want %d of each", len(got.Denied), len(got.Warned), MaxViolations)
	}
	for rule, message := range map[string]string{
		"SVC009": got.Denied[MaxViolations-1].Message(), "SVC031": got.Warned[MaxViolations-1].Message(),
	} {
		if !strings.HasSuffix(message, " ["+rule+"]") || strings.Contains(message, "; [") {
			t.Errorf("a message lacks its advice: %s", message)
		}
	}
}

func TestAllViolationsAreComparedInUpdates(t *testing.T) {
	const mistakes = 10 * MaxViolations
	old, fewer, more := serviceWithMistakes(mistakes), serviceWithMistakes(mistakes-1), serviceWithMistakes(mistakes+1)
	for name, updated := range map[string]*Service{"unchanged": old, "one fixed": fewer} {
		if got := ReviewService(old, updated, Facts{}, nil); len(got.Denied)+len(got.Warned) > 0 {
			t.Errorf("%s: %d denials and %d warnings", name, len(got.Denied), len(got.Warned))
		}
	}
	got := ReviewService(old, more, Facts{}, nil)
	if len(got.Denied) != 1 || len(got.Warned) != 1 || !strings.Contains(got.Denied[0].Error.Field, fmt.Sprintf("%05d", mistakes)) {
		t.Errorf("one more of each: got %+v", got)
	}
}
