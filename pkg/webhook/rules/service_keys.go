package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// keyRules are the rules about lists of topology keys, by what package policy calls them.
var keyRules = map[policy.Rule]ID{
	policy.NotEmpty:      "SVC001",
	policy.AtMostMaxKeys: "SVC002",
	policy.LabelKey:      "SVC003",
	policy.Unique:        "SVC004",
	policy.AnyNodeLast:   "SVC005",
}

// findKeys finds what is wrong with the list of topology keys (SVC001 to SVC005).
func findKeys(s *subject) []finding {
	if !s.hasKeys {
		return nil
	}
	return keyFindings(s.keysText, annotation(policy.TopologyKeysAnnotation), func(rule policy.Rule) ID { return keyRules[rule] })
}

// keyFindings are what is wrong with a list of topology keys in a field.
func keyFindings(text string, path *field.Path, ruleOf func(policy.Rule) ID) []finding {
	var faults policy.KeyErrors
	if _, err := policy.ParseKeys(text); !errors.As(err, &faults) {
		return nil
	}
	findings := make([]finding, len(faults))
	for i, fault := range faults {
		findings[i] = keyFinding(fault, text, path, ruleOf)
	}
	return findings
}

func keyFinding(fault policy.KeyError, text string, path *field.Path, ruleOf func(policy.Rule) ID) finding {
	err := keyError(fault, countKeys(text), path)
	value := string(fault.Rule) + " " + fault.Entry
	if fault.Rule == policy.AtMostMaxKeys {
		value = strconv.Itoa(countKeys(text))
	}
	return findingOf(ruleOf(fault.Rule), err, value, text)
}

// keyError says with Kubernetes' own kinds of errors what is wrong with a list of that many keys.
func keyError(fault policy.KeyError, count int, path *field.Path) *field.Error {
	detail := fault.Cause + "; " + fault.Remedy
	switch fault.Rule {
	case policy.NotEmpty:
		if fault.Position > 0 {
			detail = fmt.Sprintf("entry %d %s", fault.Position, detail)
		}
		return field.Required(path, detail)
	case policy.AtMostMaxKeys:
		err := field.TooMany(path, count, policy.MaxKeys)
		err.Detail += "; " + fault.Remedy
		return err
	case policy.Unique:
		return errorOf(field.ErrorTypeDuplicate, path, fault.Entry, detail)
	case policy.LabelKey, policy.AnyNodeLast:
	}
	return errorOf(field.ErrorTypeInvalid, path, fault.Entry, detail)
}

func countKeys(text string) int { return strings.Count(text, ",") + 1 }

// inLongList finds what else is wrong with a Service's list that is too long.
func inLongList(before *Service) []finding {
	text := before.Metadata.Annotations[policy.TopologyKeysAnnotation]
	return longListFindings(text, annotation(policy.TopologyKeysAnnotation), func(rule policy.Rule) ID { return keyRules[rule] })
}

// maxExamined is how many entries of a list that is too long are looked at: many times what anybody writes by hand, and quick.
const maxExamined = 512

// longListFindings are what is wrong with the entries of a list that is too long. The parser does not look at them; but whoever only
// makes such a list shorter has not brought their mistakes in.
func longListFindings(text string, path *field.Path, ruleOf func(policy.Rule) ID) []finding {
	if countKeys(text) <= policy.MaxKeys {
		return nil
	}
	var findings []finding
	seen := map[string]bool{}
	for _, entry := range strings.SplitN(text, ",", maxExamined+1) {
		entry = strings.TrimSpace(entry)
		if seen[entry] {
			findings = append(findings, keyFinding(policy.KeyError{Rule: policy.Unique, Entry: entry}, text, path, ruleOf))
		}
		seen[entry] = true
		switch _, err := policy.ParseKeys(entry); {
		case entry == string(policy.AnyNode):
			findings = append(findings, keyFinding(policy.KeyError{Rule: policy.AnyNodeLast, Entry: entry}, text, path, ruleOf))
		case entry == "":
			findings = append(findings, keyFinding(policy.KeyError{Rule: policy.NotEmpty}, text, path, ruleOf))
		case err != nil:
			findings = append(findings, keyFinding(policy.KeyError{Rule: policy.LabelKey, Entry: entry}, text, path, ruleOf))
		}
	}
	return findings
}
