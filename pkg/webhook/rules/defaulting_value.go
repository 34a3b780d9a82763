package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Values returns the valid values of a default; nil for topology keys, a list that policy.ParseKeys parses.
//
// PreferClose is not among them: it is the older name of PreferSameZone, and the API server warns about it.
func (s Setting) Values() []string {
	switch s {
	case TopologyMode:
		return []string{policy.ModeAuto, policy.ModeDisabled, policy.ModeBalanced}
	case TrafficDistribution:
		return []string{policy.PreferSameZone, policy.PreferSameNode}
	case TopologyKeys:
		return nil
	default:
		return nil
	}
}

// Check returns the error in a default; nil if it is valid. A valid default is valid for any Service that has no other
// setting.
func (d Default) Check() error {
	values := d.Setting.Values()
	switch {
	case d.Setting == TopologyKeys && d.Value == policy.None: // it could be a label's key, which would match no Node
		return fmt.Errorf("%s is not a list of keys", policy.None)
	case d.Setting == TopologyKeys:
		_, err := policy.ParseKeys(d.Value)
		return err
	case values == nil:
		return fmt.Errorf("%.*q is not a topology setting", maxQuotedValue, d.Setting)
	case !slices.Contains(values, d.Value):
		return fmt.Errorf("%.*q must be one of: %s", maxQuotedValue, d.Value, strings.Join(values, ", "))
	}
	return nil
}

// maxQuotedValue is how much of an invalid value a reason repeats: an annotation may have 256 KiB.
const maxQuotedValue = 64

// needsZones reports whether a setting has an effect only in clusters with several zones. The others do not need
// zones: a list of keys names its labels itself, PreferSameNode is about nodes, and Disabled has no effect.
func (d Default) needsZones() bool {
	return d.Setting == TopologyMode && d.Value != policy.ModeDisabled || d.Setting == TrafficDistribution && d.Value == policy.PreferSameZone
}

// isBalanced reports whether a setting is topology-mode=vicinity.dev/balanced.
func (d Default) isBalanced() bool {
	return d.Setting == TopologyMode && d.Value == policy.ModeBalanced
}

// conflictsWithLocal reports whether a setting conflicts with externalTrafficPolicy: Local. Topology mode and traffic
// distribution do not, because they only concern clients within the cluster.
func (d Default) conflictsWithLocal() bool {
	keys, err := policy.ParseKeys(d.Value)
	return d.Setting == TopologyKeys && (err != nil || policy.ConflictsWithLocal(keys))
}

// needsHints reports whether a setting takes effect through the hints that a controller writes into EndpointSlices.
func (d Default) needsHints() bool { return d.Setting != TopologyKeys && !d.isBalanced() }
