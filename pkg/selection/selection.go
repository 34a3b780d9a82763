package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// NodeView is the deciding node, and the data about other nodes that it has.
type NodeView struct {
	// Node is this node. Its labels are nil while the Node object is unknown.
	Node model.Node
	// Labels returns the labels of any node, and whether that node is known. nil means that no other node is known.
	Labels func(node string) (labels map[string]string, known bool)
	// Demand returns each node's demand on a load-bounded Service, for plans by its keys. It returns false while some
	// nodes are unknown; a nil function means the same.
	Demand func(service *model.Service) (demand balance.Demand, known bool)
	// plan caches the port's plan for the decisions of other nodes. nil disables caching.
	plan *portPlan
}

// Selection is the decision for one Service port in one family on one node.
type Selection struct {
	// Cluster is the choice for traffic that no policy keeps on this node.
	Cluster Choice
	// Local is the choice for traffic that internalTrafficPolicy or externalTrafficPolicy keeps on this node. It is nil
	// without such a policy. If both apply, its reason names the internal one.
	Local *Choice
	// HasUsableEndpoint reports whether any node has a usable endpoint of the Service. Without one, connections are
	// refused.
	HasUsableEndpoint bool
	// internalLocal is set if a Local policy governs the ClusterIP, externalLocal if one governs the other frontends for
	// external clients.
	internalLocal, externalLocal bool
}

// Choice is a set of endpoints, the tier they form, and the reason.
type Choice struct {
	// Endpoints are in the given order, without duplicates. They may be the given slice itself: do not write to them.
	Endpoints []model.PortEndpoint
	// Slots is the number of slots of each of the Endpoints. nil means one each. Share is this node's part of the plan
	// that they come from, or nil without a plan. StickyOnly are endpoints that the plan could use, but that have no slot
	// here: clients with session affinity keep them.
	Slots      []int
	Share      *balance.Share
	StickyOnly []model.PortEndpoint
	// record is the record of the plan that Share comes from, or nil without a plan.
	record *planRecord
	// Tier is the topology key that won ("topology.kubernetes.io/zone", "*") or one of the Tier constants. It is empty if
	// there are no endpoints.
	Tier   string
	Reason Reason
}

// The tiers that are not topology keys.
const (
	TierForNodes = "forNodes" // the hints for this node
	TierForZones = "forZones" // the hints for this node's zone
	TierNode     = "node"     // the endpoints to which a Local policy restricts this node
	TierAll      = "all"      // no restriction
)

// Exclusion is an endpoint that no choice contains, with the reason.
type Exclusion struct {
	Endpoint netip.AddrPort
	Reason   Reason
}

// Outcome is the treatment of a connection.
type Outcome uint8

// The outcomes.
const (
	Balance Outcome = iota // load-balanced over the chosen endpoints
	Refuse                 // no endpoint could serve it: reject it at once
	Drop                   // others could serve it, but a Local policy forbids that: drop it silently, as kube-proxy does
)

// ClusterIP returns the choice that serves connections to the ClusterIP, and their outcome.
//
// If topology keys match no endpoint, connections are refused, although endpoints exist elsewhere: the Service's owner
// wants no other endpoints here, and a client should see that at once. Only a Local policy drops connections.
func (s Selection) ClusterIP() (Choice, Outcome) {
	if s.internalLocal {
		return s.serveLocal(internalTrafficPolicy)
	}
	return s.serveCluster()
}

// External returns the choice that serves connections to every other frontend, and their outcome, for clients that are
// neither pods nor this node. It is meaningful only for a port that has such a frontend.
func (s Selection) External() (Choice, Outcome) {
	if s.externalLocal {
		return s.serveLocal(externalTrafficPolicy)
	}
	return s.serveCluster()
}

// ShortCircuit is External for pods and this node. These clients are already inside the cluster, so no policy keeps
// their connections on this node: it is as if a load balancer had chosen any node for them.
func (s Selection) ShortCircuit() (Choice, Outcome) { return s.serveCluster() }

func (s Selection) serveCluster() (Choice, Outcome) {
	if len(s.Cluster.Endpoints) > 0 {
		return s.Cluster, Balance
	}
	return s.Cluster, Refuse
}

// serveLocal returns the local choice, with policyField as the policy in its reason: if both policies apply, they
// choose the same endpoints.
func (s Selection) serveLocal(policyField string) (Choice, Outcome) {
	choice := *s.Local
	if choice.Reason.Key != "" { // it is empty if the Service has no usable endpoints
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
