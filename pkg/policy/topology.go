package policy

// Topology is how a Service's owner wants endpoints to be preferred.
type Topology struct {
	// Keys are the topology keys in order of preference, as KEP-536 defined them; none without the annotation, unless a
	// bound needs some.
	Keys []Key
	// MaxLoad bounds the load that any endpoint may expect, in percent of the mean of all: 100 to 1000. Zero: the first
	// key wins, whatever that means for the load. With a bound there are keys.
	MaxLoad uint64
	// Clients are the Services whose ready endpoints are the demand of a node, "namespace/name"; none: all nodes ask alike.
	// Without a bound they mean nothing.
	Clients []string
	// Ignored are the annotations without effect.
	Ignored []Ignored
}

// Ignored is an annotation that is present and has no effect: why, and what to do.
type Ignored struct{ Annotation, Reason string }

// Key is a node label's key, or AnyNode.
type Key string

// AnyNode matches every endpoint, wherever it runs. It can only be the last key.
const AnyNode Key = "*"

// Keys that EndpointSlices answer: nodeName answers Hostname, zone answers Zone.
const (
	Hostname Key = "kubernetes.io/hostname"
	Zone     Key = "topology.kubernetes.io/zone"
)

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

// Words are what a Service's topology policy is read from.
type Words struct {
	Service     string // namespace/name
	Annotations map[string]string
	// ExternalTrafficLocal is externalTrafficPolicy: Local on a Service that is reachable from outside.
	ExternalTrafficLocal bool
	TrafficDistribution  string // spec.trafficDistribution; empty if it is not set
	// DefaultMaxLoad is the cluster's bound, in percent, for Services that prefer some endpoints and say nothing of a bound;
	// zero for none.
	DefaultMaxLoad uint64
}

// Parse reads a Service's topology policy.
//
// An annotation that cannot be obeyed in full is ignored in full: half of a policy is what no owner asked for. Keys stay
// in force if their bound is ignored: that is how they are meant by every other reader. Instead of a bound that cannot
// be read the usual one holds, the cluster's or DefaultMaxLoad: its owner wanted to protect the endpoints.
func Parse(words Words) Topology {
	var topology Topology
	topology.readKeys(words)
	topology.readBound(words)
	topology.readClients(words)
	return topology
}

func (t *Topology) ignore(annotation, reason string) {
	t.Ignored = append(t.Ignored, Ignored{annotation, reason})
}

func (t *Topology) readKeys(words Words) {
	value, present := words.Annotations[TopologyKeysAnnotation]
	if !present {
		return
	}
	keys, err := ParseKeys(value)
	switch {
	case err != nil:
		t.ignore(TopologyKeysAnnotation, err.Error())
	case words.ExternalTrafficLocal && ConflictsWithLocal(keys):
		t.ignore(TopologyKeysAnnotation, "topology keys "+LocalConflict+"; "+LocalRemedy)
	default:
		t.Keys = keys
	}
}

// ConflictsWithLocal reports whether keys may not stand beside externalTrafficPolicy: Local.
func ConflictsWithLocal(keys []Key) bool {
	return len(keys) != 1 || keys[0] != AnyNode
}
