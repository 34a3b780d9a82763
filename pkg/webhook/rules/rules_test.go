package rules

import (
	"regexp"
	"strings"
	"testing"
)

func TestRulesAreInOrder(t *testing.T) {
	last := map[string]ID{} // by kind
	for _, rule := range Rules() {
		if rule.ID <= last[rule.Kind] {
			t.Errorf("%s comes after %s", rule.ID, last[rule.Kind])
		}
		last[rule.Kind] = rule.ID
		if !regexp.MustCompile(`^(SVC|NS|EPS|NODE)\d{3}$`).MatchString(string(rule.ID)) {
			t.Errorf("%q is not a rule ID", rule.ID)
		}
		if rule.Default != Deny && rule.Default != Warn {
			t.Errorf("%s: default action %q, want deny or warn", rule.ID, rule.Default)
		}
		if rule.Strict && rule.Default != Warn {
			t.Errorf("%s: Strict is set, but the default action is %q, want warn", rule.ID, rule.Default)
		}
		if !strings.HasSuffix(rule.Summary, ".") || strings.Contains(rule.Summary, ". ") {
			t.Errorf("%s: %q is not one sentence", rule.ID, rule.Summary)
		}
		if got, ok := RuleOf(rule.ID); !ok || got.ID != rule.ID {
			t.Errorf("RuleOf(%s) = %s, %v", rule.ID, got.ID, ok)
		}
	}
	if rule, ok := RuleOf("SVC999"); ok || rule.ID != "" {
		t.Errorf("RuleOf(SVC999) = %s, %v", rule.ID, ok)
	}
}

func TestRulesReturnsACopy(t *testing.T) {
	Rules()[0].Default = Off
	if Rules()[0].Default != Deny {
		t.Error("Rules() does not return a copy")
	}
}
