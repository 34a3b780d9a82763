package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// actionWords are what a rule can be set to.
var actionWords = []string{string(rules.Deny), string(rules.Warn), string(rules.Off)}

// actions reads the actions for violations of single rules.
func (r *reader) actions(at *field.Path, value *yaml.Node) map[rules.ID]rules.Action {
	actions := map[rules.ID]rules.Action{}
	r.each(value, at, func(at *field.Path, key, value *yaml.Node) {
		if wrong := wrongRule(key.Value); wrong != "" {
			r.refuse(key, unsupported(at, key.Value, wrong))
			return
		}
		if !slices.Contains(actionWords, value.Value) || value.Kind != yaml.ScalarNode {
			r.refuse(value, unsupported(at, value.Value, "must be one of: "+strings.Join(actionWords, ", ")+suggestion(value.Value, actionWords)))
			return
		}
		actions[rules.ID(key.Value)] = rules.Action(value.Value)
	})
	return actions
}

// wrongRule says why nothing can be set for a rule of that name; empty if it can.
func wrongRule(name string) string {
	rule, exists := rules.RuleOf(rules.ID(name))
	if !exists {
		return "there is no such rule" + suggestion(name, ruleNames())
	}
	if rule.Kind != "Service" && rule.Kind != "Namespace" {
		return fmt.Sprintf("the webhook does not see %ss; this rule is one of the policies in manifests/webhook-cel, and is set there", rule.Kind)
	}
	return ""
}

func ruleNames() []string {
	var names []string
	for _, rule := range rules.Rules() {
		names = append(names, string(rule.ID))
	}
	return names
}
