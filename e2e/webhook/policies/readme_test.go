package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The README's table of rules must match the cases and the policies.
func TestTheReadmeDescribesThePolicies(t *testing.T) {
	policies := map[rules.ID]string{}
	for _, policy := range shippedPolicies(t) {
		for _, variable := range policy.Spec.Variables {
			if _, isRule := rules.RuleOf(rules.ID(variable.Name)); isRule {
				policies[rules.ID(variable.Name)] = policy.Name
			}
		}
	}
	var want []string
	for _, rule := range rules.Rules() {
		want = append(want, row(rule, policies[rule.ID], reasonsOf(t, rule.ID)))
	}
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	must.Succeed(t, err)
	var got []string
	for line := range strings.Lines(string(text)) {
		if id, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " "); strings.HasPrefix(line, "| ") && isRule(id) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows of the table (-want +got):\n%s", diff)
	}
}

func isRule(id string) bool {
	_, isRule := rules.RuleOf(rules.ID(id))
	return isRule
}

// row returns the table row of a rule. A rule without a policy must have a reason in every case that breaks it.
func row(rule rules.Rule, policy string, reasons []string) string {
	what := "`" + policy + "`"
	if policy == "" {
		what = "no: " + strings.Join(reasons, "; ")
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", rule.ID, rule.Default, what, rule.Summary)
}

// reasonsOf returns why CEL cannot express a rule, according to the cases that break it.
func reasonsOf(t *testing.T, rule rules.ID) []string {
	t.Helper()
	var reasons []string
	for _, c := range rulecases.Cases(t) {
		breaks := slices.ContainsFunc(c.Want, func(want rulecases.Want) bool { return want.Rule == rule })
		if breaks && c.NotInCEL != "" && !slices.Contains(reasons, c.NotInCEL) {
			reasons = append(reasons, c.NotInCEL)
		}
	}
	return reasons
}
