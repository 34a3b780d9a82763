package policy

// Topology is a Service's preference among its endpoints.
type Topology struct {
	// Keys are the topology keys in order of preference, as defined by KEP-536. They are those of the annotation. With a
	// bound and without the annotation, they are those that spec.trafficDistribution or the mode stands for. Otherwise
	// there are none.
	Keys []Key
	// MaxLoad bounds the expected load of each endpoint, in percent of the mean of all: 100 to 1000. Zero means no bound:
	// the first key applies, whatever the load. A Topology with a bound has keys.
	MaxLoad uint64
	// Clients are the Services whose ready endpoints are the demand of a node, as "namespace/name". Without clients all
	// nodes have the same demand. Without a bound they have no effect.
	Clients []string
	// Measured is set if the measured demand is used. Until a measurement exists, the demand is that of Clients.
	Measured bool
	// HintsSetting is the setting that applies if EndpointSlices have hints, such as "spec.trafficDistribution:
	// PreferSameZone". It is empty if there is none, or if keys replace it.
	HintsSetting string
}

// NodeKeys returns the labels of other nodes on which the Service depends. A load bound needs all nodes, with their
// zones and demand.
func (t Topology) NodeKeys() []Key {
	var keys []Key
	isBounded := t.MaxLoad > 0
	if isBounded {
		keys = append(keys, DemandLabels[:]...)
	}
	for _, key := range t.Keys {
		if key.NeedsNode() || isBounded && key == Zone {
			keys = append(keys, key)
		}
	}
	return keys
}

// Key is the key of a node label, or AnyNode.
type Key string

// AnyNode matches every endpoint on any node. It can only be the last key.
const AnyNode Key = "*"

// Keys with values in EndpointSlices: nodeName for Hostname, zone for Zone.
const (
	Hostname Key = "kubernetes.io/hostname"
	Zone     Key = "topology.kubernetes.io/zone"
)

// ZoneInSlices explains why an EndpointSlice may lack the zone of a Node or have an old one, and what updates it.
const ZoneInSlices = "EndpointSlices keep the zone that a Node had when they were written, until the Service or its pods change"

// Region is the label of the region, which contains zones.
const Region Key = "topology.kubernetes.io/region"

// NeedsNode reports whether an endpoint's value of the key is only on its Node. EndpointSlices have the values of
// Hostname and Zone, and AnyNode needs none.
func (k Key) NeedsNode() bool { return k != AnyNode && k != Hostname && k != Zone }

// LocalConflict explains why keys are ignored with externalTrafficPolicy: Local, and LocalRemedy is the remedy. The two
// conflict for every key but kubernetes.io/hostname, so KEP-536 forbids the combination. `*` alone prefers no endpoint
// and conflicts with nothing.
const (
	LocalConflict = "may not be used with externalTrafficPolicy: Local"
	LocalRemedy   = "set externalTrafficPolicy to Cluster, or remove the annotation"
)

// ConflictsWithLocal reports whether the keys must not be combined with externalTrafficPolicy: Local.
func ConflictsWithLocal(keys []Key) bool {
	return len(keys) != 1 || keys[0] != AnyNode
}
