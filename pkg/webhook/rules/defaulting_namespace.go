package rules

import (
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// decide returns the decision of a Namespace's annotations, if there are any. Annotations that contradict each other or
// are invalid choose nothing, and end the search: their author did not ask for the cluster's default.
func (n NamespaceDefaults) decide() (decision DefaultDecision, isSet bool) {
	var present []string
	for _, annotation := range namespaceAnnotations {
		if _, ok := n.Annotations[annotation.key]; ok {
			present = append(present, annotation.key)
			decision = annotation.read(n.Annotations[annotation.key])
		}
	}
	if len(present) > 1 {
		return DefaultDecision{
			Source: FromNamespace, Reason: "the Namespace has more than one default: " + strings.Join(present, ", "),
		}, true
	}
	return decision, len(present) == 1
}

// namespaceAnnotation is a Namespace annotation that sets a default.
type namespaceAnnotation struct {
	key     string
	setting Setting
}

// namespaceAnnotations are all annotations that set a default.
var namespaceAnnotations = []namespaceAnnotation{
	{policy.DefaultTopologyModeAnnotation, TopologyMode},
	{policy.DefaultTopologyKeysAnnotation, TopologyKeys},
	{policy.DefaultTrafficDistributionAnnotation, TrafficDistribution},
}

// read parses the value of an annotation. The value None means no default, for every Setting. That includes topology
// keys, although a label may have that key: a Namespace with None must not get a default that matches no Node.
func (a namespaceAnnotation) read(value string) DefaultDecision {
	if value == policy.None {
		return DefaultDecision{Source: FromNamespace, Reason: fmt.Sprintf("the Namespace has %s=%s", a.key, policy.None)}
	}
	add := Default{Setting: a.setting, Value: value}
	if err := add.Check(); err != nil {
		return DefaultDecision{Source: FromNamespace, Reason: fmt.Sprintf("the Namespace's %s cannot be used: %s", a.key, err)}
	}
	return DefaultDecision{Add: &add, Source: FromNamespace}
}
