package rules

import (
	"regexp"
	"strings"
	"testing"
)

func TestRulesAreInOrder(t *testing.T) {
	seen := map[ID]bool{}
	for _, rule := range Rules() {
		if seen[rule.ID] {
			t.Errorf("%s stands twice", rule.ID)
		}
		seen[rule.ID] = true
		if !regexp.MustCompile(`^(SVC|NS|EPS|NODE)\d{3}$`).MatchString(string(rule.ID)) {
			t.Errorf("%q is no id", rule.ID)
		}
		if rule.Default != Deny && rule.Default != Warn {
			t.Errorf("%s: default %q", rule.ID, rule.Default)
		}
		if rule.Strict && rule.Default != Warn {
			t.Errorf("%s: strict mode cannot do more than deny", rule.ID)
		}
		if !strings.HasSuffix(rule.Summary, ".") || strings.Contains(rule.Summary, ". ") {
			t.Errorf("%s: %q is not one sentence", rule.ID, rule.Summary)
		}
		if got, ok := RuleOf(rule.ID); !ok || got != rule {
			t.Errorf("RuleOf(%s) = %v, %v", rule.ID, got, ok)
		}
	}
	if rule, ok := RuleOf("SVC999"); ok || rule != (Rule{}) {
		t.Errorf("RuleOf(SVC999) = %v, %v", rule, ok)
	}
}

func TestCallersCannotChangeTheRules(t *testing.T) {
	Rules()[0].Default = Off
	if Rules()[0].Default != Deny {
		t.Error("the caller's copy is the table itself")
	}
}
