package rules

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// examineNamespace finds everything that is wrong with a Namespace, seen alone.
func examineNamespace(namespace *Namespace) []finding {
	metadata := &namespace.Metadata
	var findings []finding
	findings = append(findings, findDefault(metadata, "NS001", policy.DefaultTopologyModeAnnotation, policy.ModeAuto, policy.ModeDisabled)...)
	findings = append(findings, findDefaultKeys(metadata)...)
	findings = append(findings, findDefault(metadata, "NS003", policy.DefaultTrafficDistributionAnnotation,
		policy.PreferSameZone, policy.PreferSameNode)...)
	findings = append(findings, findSeveralDefaults(metadata)...)
	return append(findings, namespaceWords.findIn(metadata)...)
}

// findDefault finds a default that is none of the values that it can have (NS001, NS003). It can always be None.
func findDefault(metadata *Metadata, rule ID, key string, values ...string) []finding {
	value, present := metadata.Annotations[key]
	values = append(values, policy.None)
	if !present || slices.Contains(values, value) {
		return nil
	}
	err := field.NotSupported(annotation(key), shown(value), values)
	if meant := meantBy(value, values); meant != "" {
		err.Detail = fmt.Sprintf("did you mean %q? %s", meant, err.Detail)
	}
	return []finding{findingOf(rule, err, value)}
}

// meantBy returns which value was probably meant.
func meantBy(value string, values []string) string {
	if sameWord(value, []string{policy.PreferClose}) != "" && slices.Contains(values, policy.PreferSameZone) {
		return policy.PreferSameZone // which means the same
	}
	return policy.Suggest(value, values...)
}

// findDefaultKeys finds what is wrong with the default topology keys (NS002).
func findDefaultKeys(metadata *Metadata) []finding {
	text, present := metadata.Annotations[policy.DefaultTopologyKeysAnnotation]
	if !present || text == policy.None {
		return nil
	}
	return keyFindings(text, annotation(policy.DefaultTopologyKeysAnnotation), defaultKeysRule)
}

// inLongDefault finds what else is wrong with default topology keys that are too many.
func inLongDefault(before *Namespace) []finding {
	text := before.Metadata.Annotations[policy.DefaultTopologyKeysAnnotation]
	return longListFindings(text, annotation(policy.DefaultTopologyKeysAnnotation), defaultKeysRule)
}

func defaultKeysRule(policy.Rule) ID { return "NS002" }

// findSeveralDefaults finds defaults besides the first one (NS004).
func findSeveralDefaults(metadata *Metadata) []finding {
	var findings []finding
	seen := false
	for _, key := range namespaceWords.annotations {
		if _, present := metadata.Annotations[key]; !present {
			continue
		}
		if seen {
			err := field.Forbidden(annotation(key), "set only one of default-topology-mode, default-topology-keys, default-traffic-distribution")
			findings = append(findings, findingOf("NS004", err, ""))
		}
		seen = true
	}
	return findings
}
