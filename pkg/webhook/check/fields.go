package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// knownField is the name of a field that users may set for topology, and the right path for it.
type knownField struct{ name, path string }

var namespaceFields = []knownField{
	{"metadata", "metadata"},
	{"annotations", "metadata.annotations"},
	{"labels", "metadata.labels"},
}

var serviceFields = append([]knownField{
	{"spec", "spec"},
	{"internalTrafficPolicy", "spec.internalTrafficPolicy"},
	{"externalTrafficPolicy", "spec.externalTrafficPolicy"},
	{"trafficDistribution", "spec.trafficDistribution"},
	{"topologyKeys", "metadata.annotations[" + policy.TopologyKeysAnnotation + "]"},
}, namespaceFields...)

// unknownFieldError returns why an unknown field is an error; empty if it is not. API servers drop such fields, and
// most are unrelated to topology.
func unknownFieldError(field string, known []knownField) string {
	name := strings.TrimPrefix(strings.TrimPrefix(field, "metadata."), "spec.")
	names := make([]string, len(known))
	for i, candidate := range known {
		if names[i] = candidate.name; candidate.name == name {
			return unknownFieldText("did you mean " + candidate.path + "?")
		}
	}
	suggestion := policy.Suggest(name, names...)
	for _, candidate := range known {
		if candidate.name == suggestion {
			return unknownFieldText("did you mean " + candidate.path + "?")
		}
	}
	if len(known) > 0 && strings.Contains(strings.ToLower(name), "topology") {
		return unknownFieldText("is it an annotation?")
	}
	return ""
}

func unknownFieldText(hint string) string { return "unknown field, which API servers drop; " + hint }

// addTypeError records a field of the wrong type. The decoder does not report which annotation or label it is, but the
// mistake is always the same: in YAML, true and 5 are not strings.
func (f *Files) addTypeError(loc location, fault manifest.ParseError) {
	var object struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	var values map[string]json.RawMessage
	parent, name, _ := strings.Cut(fault.Field, ".")
	if parent == "metadata" && json.Unmarshal(loc.part.JSON, &object) == nil && json.Unmarshal(object.Metadata[name], &values) == nil {
		isReported := false
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if value := string(values[key]); value != "null" && value[0] != '"' {
				f.addError(loc, fault.Field+"["+key+"]", mustBeString([]byte(value)))
				isReported = true
			}
		}
		if isReported {
			return
		}
	}
	f.addError(loc, fault.Field, fault.Reason)
}

// mustBeString returns the error about a JSON value that is not a string.
func mustBeString(value []byte) string {
	return fmt.Sprintf("must be a string, not %.40s; %s", value, quotingHint(string(value)))
}

// quotingHint returns how to write a value as a string. Quotes around a list would make its brackets part of the text.
func quotingHint(value string) string {
	if value[0] == '[' || value[0] == '{' {
		return `write one string, such as "topology.kubernetes.io/zone, *"`
	}
	return "put it in quotes"
}
