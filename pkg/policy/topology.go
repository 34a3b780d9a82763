package policy

// Topology is which endpoints a Service's owner prefers.
type Topology struct {
	// Keys are the topology keys in order of preference, as KEP-536 defined them: those of the annotation; with a bound
	// and without the annotation, those that spec.trafficDistribution or the mode stands for. None otherwise.
	Keys []Key
	// MaxLoad bounds the load that any endpoint may expect, in percent of the mean of all: 100 to 1000. Zero: the first
	// key wins, whatever that means for the load. With a bound there are keys.
	MaxLoad uint64
	// Clients are the Services whose ready endpoints are the demand of a node, "namespace/name"; none: all nodes ask alike.
	// Without a bound they mean nothing.
	Clients []string
	// Measured: the demand of nodes is what was measured, if it was; until then it is that of Clients.
	Measured bool
	// ByHints is the setting that applies where EndpointSlices have hints, such as "spec.trafficDistribution:
	// PreferSameZone"; empty if there is none, or if keys replace it.
	ByHints string
}

// NodeKeys returns the labels of other nodes that matter. To bound a load, all nodes must be known, with their zones
// and demand.
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

// Key is a node label's key, or AnyNode.
type Key string

// AnyNode matches every endpoint, wherever it runs. It can only be the last key.
const AnyNode Key = "*"

// Keys that EndpointSlices answer: nodeName answers Hostname, zone answers Zone.
const (
	Hostname Key = "kubernetes.io/hostname"
	Zone     Key = "topology.kubernetes.io/zone"
)

// ZoneInSlices is why an EndpointSlice may lack the zone of a Node, or have an old one, and what changes that.
const ZoneInSlices = "EndpointSlices keep the zone that a Node had when they were written, until the Service or its pods change"

// Region is where zones are.
const Region Key = "topology.kubernetes.io/region"

// NeedsNode reports whether only an endpoint's Node knows its value of the key. An EndpointSlice answers Hostname and
// Zone, and AnyNode asks nothing.
func (k Key) NeedsNode() bool { return k != AnyNode && k != Hostname && k != Zone }

// LocalConflict is why keys give way to externalTrafficPolicy: Local, and LocalRemedy what to do about it. The two
// contradict each other for every key but kubernetes.io/hostname, so KEP-536 forbids the pair. `*` alone prefers no
// endpoint, and contradicts nothing.
const (
	LocalConflict = "may not be used with externalTrafficPolicy: Local"
	LocalRemedy   = "set externalTrafficPolicy to Cluster, or remove the annotation"
)

// ConflictsWithLocal reports whether keys may not stand beside externalTrafficPolicy: Local.
func ConflictsWithLocal(keys []Key) bool {
	return len(keys) != 1 || keys[0] != AnyNode
}
