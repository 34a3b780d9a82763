package policy

import (
	"strings"
	"testing"
)

func TestSuggest(t *testing.T) {
	annotations := []string{TopologyModeAnnotation, TopologyAwareHintsAnnotation, TopologyKeysAnnotation}
	for name, test := range map[string]struct {
		word  string
		known []string
		want  string
	}{
		"another case":                     {"AUTO", []string{"Auto", "Disabled"}, "Auto"},
		"a trailing space":                 {"Disabled ", []string{"Auto", "Disabled"}, "Disabled"},
		"a missing letter":                 {"Disable", []string{"Auto", "Disabled"}, "Disabled"},
		"two letters swapped":              {"Atuo", []string{"Auto", "Disabled"}, "Auto"},
		"two different letters":            {"internalTrafficPolicy", []string{"externalTrafficPolicy"}, ""},
		"two additional letters":           {"internalTrafficPolicyyy", []string{"internalTrafficPolicy"}, "internalTrafficPolicy"},
		"the plural of a singular":         {"ipFamilyPolicies", []string{"ipFamilies", "ipFamilyPolicy"}, "ipFamilyPolicy"},
		"the singular of a plural":         {"ipFamily", []string{"ipFamilies", "ipFamilyPolicy"}, "ipFamilies"},
		"a singular with a typo":           {"loadBalancrSourceRange", []string{"loadBalancerSourceRanges"}, "loadBalancerSourceRanges"},
		"only the ending of a plural":      {"s", []string{"-s", "s"}, "-s"},
		"another word":                     {"foo", []string{"Auto", "Disabled"}, ""},
		"an empty word":                    {"", []string{"Auto", "Disabled"}, ""},
		"only spaces and dashes":           {" - ", []string{"Auto", "-"}, ""},
		"a missing dash":                   {"service.kubernetes.io/topologymode", annotations, TopologyModeAnnotation},
		"camel case":                       {"vicinity.dev/topologyKeys", annotations, TopologyKeysAnnotation},
		"a typo in the prefix":             {"vicinty.dev/topology-keys", annotations, TopologyKeysAnnotation},
		"another prefix":                   {"service.alpha.kubernetes.io/topology-aware-hints", annotations, TopologyAwareHintsAnnotation},
		"another prefix, and a typo":       {"example.com/topology-key", annotations, TopologyKeysAnnotation},
		"no prefix":                        {"zone", []string{string(Hostname), string(Zone)}, string(Zone)},
		"a former name":                    {"account", []string{"accounts", "traffic-accounting"}, "traffic-accounting"},
		"a former name of something else":  {"clients", []string{"traffic-accounting"}, ""},
		"the word itself is no suggestion": {"Auto", []string{"Auto"}, ""},
		"a word of 256 KiB":                {strings.Repeat("a", 1<<18), annotations, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Suggest(test.word, test.known...); got != test.want {
				t.Errorf("Suggest(%.50q) = %q, want %q", test.word, got, test.want)
			}
		})
	}
}
