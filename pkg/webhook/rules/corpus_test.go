package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The result of the rules for every case is the expected one.
func TestRulesMatchCases(t *testing.T) {
	for _, c := range rulecases.Cases(t) {
		if !isWebhookCase(c) {
			continue // the policies' own, see TestCasesAreConsistent
		}
		t.Run(c.Name, func(t *testing.T) {
			got := wantOf(evaluate(t, c))
			if diff := cmp.Diff(c.Want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultsMatchCases(t *testing.T) {
	count := 0
	for _, c := range rulecases.Cases(t) {
		if c.Default == nil {
			continue
		}
		count++
		t.Run(c.Name, func(t *testing.T) {
			service := rulecases.Service(t, c.Object)
			got := rules.DecideDefault(service, c.Namespace.ToRules(), c.Facts(t), c.Settings.ToRules(), c.Old != nil)
			if got.Source != c.Default.Source || !strings.Contains(got.Reason, c.Default.Reason) {
				t.Errorf("source %s, reason %q; want %s, %q", got.Source, got.Reason, c.Default.Source, c.Default.Reason)
			}
			var want *rules.Default
			if c.Default.Setting != "" {
				want = &rules.Default{Setting: c.Default.Setting, Value: c.Default.Value}
			}
			if diff := cmp.Diff(want, got.Add); diff != "" {
				t.Errorf("default (-want +got):\n%s", diff)
			}
		})
	}
	if count == 0 {
		t.Error("no case is about defaults")
	}
}

// An object that stays unchanged is never denied and gets no warnings.
func TestUnchangedObjectHasNoViolations(t *testing.T) {
	for _, c := range rulecases.Cases(t) {
		if !isWebhookCase(c) {
			continue
		}
		c.Old = c.Object
		if got := evaluate(t, c); len(got.Denied)+len(got.Warned) > 0 {
			t.Errorf("%s: %v", c.Name, wantOf(got))
		}
	}
}

func TestMessagesAreShortAndContainTheRule(t *testing.T) {
	const longestWarning, longestDenial = 190, 750 // Kubernetes' own texts about label keys are long
	for _, c := range rulecases.Cases(t) {
		if !isWebhookCase(c) {
			continue
		}
		result := evaluate(t, c)
		for _, violation := range slices.Concat(result.Denied, result.Warned) {
			message := violation.Message()
			rule, _ := rules.RuleOf(violation.Rule)
			if rule.Default == rules.Warn && len(message) > longestWarning || len(message) > longestDenial {
				t.Errorf("%s: the message has %d bytes: %s", c.Name, len(message), message)
			}
			if !strings.HasSuffix(message, " ["+string(violation.Rule)+"]") || !strings.HasPrefix(message, violation.Error.Field+": ") {
				t.Errorf("%s: the message does not begin with the field and end with the rule: %s", c.Name, message)
			}
			if violation.Error.Detail == "" {
				t.Errorf("%s: %s has no detail", c.Name, message)
			}
		}
	}
}

// A rule that no case violates is not tested.
func TestEveryRuleHasACase(t *testing.T) {
	violated := map[rules.ID]bool{}
	for _, c := range rulecases.Cases(t) {
		for _, want := range c.Want {
			violated[want.Rule] = true
		}
	}
	for _, rule := range rules.Rules() {
		if !violated[rule.ID] {
			t.Errorf("no case violates %s: %s", rule.ID, rule.Summary)
		}
		delete(violated, rule.ID)
	}
	for id := range violated {
		t.Errorf("a case violates %s, which does not exist", id)
	}
}

// Names are unique, kinds match, and actions without settings are the rules' defaults: other suites rely on that.
func TestCasesAreConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range rulecases.Cases(t) {
		if c.Name == "" || seen[c.Name] {
			t.Errorf("%q: the name is empty or not unique", c.Name)
		}
		seen[c.Name] = true
		if c.Old != nil && c.Old["kind"] != c.Object["kind"] {
			t.Errorf("%s: old and new have different kinds", c.Name)
		}
		for _, want := range c.Want {
			rule, known := rules.RuleOf(want.Rule)
			if !known || rule.Kind != c.Kind() {
				t.Errorf("%s: %s is a rule for %s", c.Name, want.Rule, rule.Kind)
			}
			isKept := c.Old != nil && c.NotInCEL != "" && want.Action == rules.Warn // there was a violation before, and it has changed
			if c.Settings == nil && want.Action != rule.Default && !isKept {
				t.Errorf("%s: without settings, the action of %s is %s", c.Name, want.Rule, rule.Default)
			}
		}
	}
}

func isWebhookCase(c rulecases.Case) bool { return c.Kind() == "Service" || c.Kind() == "Namespace" }

// evaluate reviews the object of a case.
func evaluate(t *testing.T, c rulecases.Case) rules.Result {
	t.Helper()
	if c.Kind() == "Namespace" {
		oldObject, object := rulecases.NamespaceOf(t, c.Old), rulecases.NamespaceOf(t, c.Object)
		return rules.ReviewNamespace(oldObject, object, c.Settings.ToRules())
	}
	oldObject, object := rulecases.Service(t, c.Old), rulecases.Service(t, c.Object)
	return rules.ReviewService(oldObject, object, c.Facts(t), c.Settings.ToRules())
}

func wantOf(result rules.Result) []rulecases.Want {
	var found []rulecases.Want
	for _, violation := range result.Denied {
		found = append(found, rulecases.Want{Rule: violation.Rule, Action: rules.Deny, Path: violation.Error.Field})
	}
	for _, violation := range result.Warned {
		found = append(found, rulecases.Want{Rule: violation.Rule, Action: rules.Warn, Path: violation.Error.Field})
	}
	return found
}

// The violations of a patch hold for the whole object: all violations in the metadata of a case are also found in the
// case itself.
func TestPatchViolationsAreObjectViolations(t *testing.T) {
	count := 0
	for _, c := range rulecases.Cases(t) {
		if !isWebhookCase(c) || c.Old != nil {
			continue
		}
		whole := evaluate(t, c)
		var patch rules.Result
		if c.Kind() == "Namespace" {
			patch = rules.ReviewNamespacePatch(rulecases.NamespaceOf(t, c.Object), c.Settings.ToRules())
		} else {
			service := rulecases.Service(t, c.Object)
			patch = rules.ReviewServicePatch(&rules.Service{Metadata: service.Metadata}, c.Settings.ToRules())
		}
		for _, want := range wantOf(patch) {
			if count++; !slices.Contains(wantOf(whole), want) {
				t.Errorf("%s: the metadata alone violates %v, the whole object %v", c.Name, want, wantOf(whole))
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d violations in metadata alone", count)
	}
}
