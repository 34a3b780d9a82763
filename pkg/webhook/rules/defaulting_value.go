package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Values are what a default of this kind can be; nil for topology keys, which are a list that policy.ParseKeys reads.
//
// PreferClose is not among them: it is an older word for PreferSameZone, and the API server warns of it.
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

// Check says what is wrong with a default, if anything. One that is right is right for any Service that has no other
// setting.
func (d Default) Check() error {
	values := d.Setting.Values()
	switch {
	case d.Setting == TopologyKeys && d.Value == policy.None: // it could be a label's key, and then would match no Node
		return fmt.Errorf("%s is no list of keys", policy.None)
	case d.Setting == TopologyKeys:
		_, err := policy.ParseKeys(d.Value)
		return err
	case values == nil:
		return fmt.Errorf("%.*q is no topology setting", maxQuotedValue, d.Setting)
	case !slices.Contains(values, d.Value):
		return fmt.Errorf("%.*q is none of: %s", maxQuotedValue, d.Value, strings.Join(values, ", "))
	}
	return nil
}

// maxQuotedValue is how much of a wrong value a reason repeats: an annotation may have 256 KiB.
const maxQuotedValue = 64

// isAboutZones reports whether a setting means anything only where there are several zones. The others do not: a list
// of keys names its labels itself, PreferSameNode is about nodes, and Disabled asks for nothing.
func (d Default) isAboutZones() bool {
	return d.Setting == TopologyMode && d.Value != policy.ModeDisabled || d.Setting == TrafficDistribution && d.Value == policy.PreferSameZone
}

// isBalanced reports whether a setting is our mode.
func (d Default) isBalanced() bool {
	return d.Setting == TopologyMode && d.Value == policy.ModeBalanced
}

// conflictsWithLocal reports whether a setting may not stand beside externalTrafficPolicy: Local. Topology mode and
// traffic distribution may, for they only concern clients within the cluster.
func (d Default) conflictsWithLocal() bool {
	keys, err := policy.ParseKeys(d.Value)
	return d.Setting == TopologyKeys && (err != nil || policy.ConflictsWithLocal(keys))
}

// needsHints reports whether a setting works through the hints that a controller writes into EndpointSlices.
func (d Default) needsHints() bool { return d.Setting != TopologyKeys && !d.isBalanced() }
