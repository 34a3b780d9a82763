package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// NodeView is where a decision is made.
type NodeView struct {
	// Node is this node. Its labels are nil while the Node object is unknown.
	Node model.Node
	// Labels returns the labels of any node, and whether that node is known. Nil if no other node is known.
	Labels func(node string) (labels map[string]string, known bool)
	// Demand returns each node's demand on a Service whose load is bounded, for plans by its keys. It returns false while
	// some nodes are unknown; nil means the same.
	Demand func(service *model.Service) (demand balance.Demand, known bool)
	// plan is where the plan for the port in question is kept for other nodes; nil if it is not.
	plan *portPlan
}

// Selection is the decision for one Service port in one family on one node.
type Selection struct {
	// Cluster is where traffic goes unless a policy keeps it on this node.
	Cluster Choice
	// Local is where traffic goes that internalTrafficPolicy or externalTrafficPolicy keeps on this node; nil without
	// such a policy. If both do, its reason names the internal one.
	Local *Choice
	// HasUsableEndpoint reports whether the Service has a usable endpoint on any node. Without one, connections are refused.
	HasUsableEndpoint bool
	// internalLocal: a Local policy governs the ClusterIP. externalLocal: one governs the other frontends, for clients
	// outside.
	internalLocal, externalLocal bool
}

// Choice is a set of endpoints, the tier they form, and the reason.
type Choice struct {
	// Endpoints are in the order in which they were given, each once. They may be the given slice itself: do not write to
	// them.
	Endpoints []model.PortEndpoint
	// Slots is how many slots each of the Endpoints gets; nil: one each. Share is this node's part of the plan that they
	// come from; nil without one. Spared are the endpoints that the plan could use, but to which no slot leads here.
	Slots   []int
	Share   *balance.Share
	Standby []model.PortEndpoint
	// planned is what Share was made of; nil without one.
	planned *planInput
	// Tier is the topology key that won ("topology.kubernetes.io/zone", "*") or one of the Tier constants; empty if there
	// are no endpoints.
	Tier   string
	Reason Reason
}

// The tiers that are no topology keys.
const (
	TierForNodes = "forNodes" // the hints for this node
	TierForZones = "forZones" // the hints for this node's zone
	TierNode     = "node"     // what a Local policy keeps on this node
	TierAll      = "all"      // nothing narrows the choice
)

// Exclusion is an endpoint that no choice contains, and why.
type Exclusion struct {
	Endpoint netip.AddrPort
	Reason   Reason
}

// Outcome is what happens to a connection.
type Outcome uint8

// The outcomes.
const (
	Balance Outcome = iota // spread over the chosen endpoints
	Refuse                 // no endpoint could answer: say so at once
	Drop                   // others could answer, but a Local policy forbids it: stay silent, as kube-proxy does
)

// ClusterIP returns the choice that serves connections to the ClusterIP, and what happens to them.
//
// If topology keys match nothing, connections are refused, although endpoints exist elsewhere: the Service's owner
// wants no other endpoints here, and a client should learn that at once. Only a Local policy drops.
func (s Selection) ClusterIP() (Choice, Outcome) {
	if s.internalLocal {
		return s.serveLocal(internalTrafficPolicy)
	}
	return s.serveCluster()
}

// External returns the choice that serves connections to every other frontend, and what happens to them, if the client
// is neither a pod nor this node. It is meaningful only for a port that has such a frontend.
func (s Selection) External() (Choice, Outcome) {
	if s.externalLocal {
		return s.serveLocal(externalTrafficPolicy)
	}
	return s.serveCluster()
}

// ShortCircuit is External for the pods and this node: they are inside already, so no policy keeps their connections on
// this node, as if a load balancer had chosen any node for them.
func (s Selection) ShortCircuit() (Choice, Outcome) { return s.serveCluster() }

func (s Selection) serveCluster() (Choice, Outcome) {
	if len(s.Cluster.Endpoints) > 0 {
		return s.Cluster, Balance
	}
	return s.Cluster, Refuse
}

// serveLocal is the local choice, named after the policy that asks for it here: both may, and they choose the same
// endpoints.
func (s Selection) serveLocal(policyField string) (Choice, Outcome) {
	choice := *s.Local
	if choice.Reason.Key != "" { // A Service without usable endpoints has none, whatever the policies say.
		choice.Reason.Key = policyField
	}
	switch {
	case len(choice.Endpoints) > 0:
		return choice, Balance
	case s.HasUsableEndpoint:
		return choice, Drop
	}
	return choice, Refuse
}
