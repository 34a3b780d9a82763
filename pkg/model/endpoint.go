package model

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// EndpointSlice is what the proxy keeps of a discovery/v1 EndpointSlice.
type EndpointSlice struct {
	Name    ObjectName
	Service ObjectName // from the label kubernetes.io/service-name; the namespace is the slice's
	Family  Family     // addressType
	// IsHeadless: it has the label of headless Services, and serves only those.
	IsHeadless bool
	// FQDNCount is how many endpoints have names instead of addresses (addressType FQDN). Such a slice has nothing else: it serves
	// no clients, and is kept so that this can be reported.
	FQDNCount uint16
	// MultiAddressCount is how many endpoints have more than one address; all but the first are ignored.
	MultiAddressCount uint16
	Ports             []SlicePort
	Endpoints         []SliceEndpoint
	// Hostnames are the names of the endpoints, in their order, below the name of a headless Service, often empty; nil if
	// no endpoint has one, or they are not needed.
	Hostnames []string

	TriggeredAt time.Time // when the cause of this version happened, as the EndpointSlice controller stamped it; zero if it did not

	// Findings say which parts of the object have no effect, while the rest is served.
	Findings []Finding
}

// isOn reports whether an endpoint is on one of some nodes.
func (s *EndpointSlice) isOn(nodes map[string]bool) bool {
	return slices.ContainsFunc(s.Endpoints, func(endpoint SliceEndpoint) bool { return nodes[endpoint.Node] })
}

// dependsOnLabel reports whether an endpoint's value of a key comes from the label of one of some nodes. The name of the node,
// and mostly the zone, come from the slice.
func (s *EndpointSlice) dependsOnLabel(key policy.Key, nodes map[string]bool) bool {
	return slices.ContainsFunc(s.Endpoints, func(endpoint SliceEndpoint) bool {
		return (key != policy.Zone || endpoint.Zone == "") && nodes[endpoint.Node]
	})
}

// SlicePort is a port that every endpoint of a slice serves. It belongs to the Service port of the same name and
// protocol.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// SliceEndpoint is one entry of a slice's endpoints: the first of its addresses, the only one that may be used
// (KEP-752).
type SliceEndpoint struct {
	Addr netip.Addr
	Endpoint
}

// Endpoint is what decides whether traffic may go to an endpoint. Kubernetes' nil conditions have been read already:
// ready and serving default to true, terminating to false.
type Endpoint struct {
	Node string // empty if unknown
	Zone string // the slice's own word for it; empty if unknown

	Ready       bool
	Serving     bool
	Terminating bool

	// HintNodes and HintZones say for which nodes and zones the EndpointSlice controller meant the endpoint. Nil and
	// empty mean the same: no hint. A hint may name the empty zone; the API accepts it.
	HintNodes []string
	HintZones []string
}

// PortEndpoint is an endpoint of one Service port.
type PortEndpoint struct {
	Addr netip.AddrPort
	Endpoint
	// Demotion is why it is tried last, because of its node; nil if it is not.
	Demotion *Demotion
}

// Phase says in which order endpoints are tried, each phase as a whole before the next one. Terminating endpoints that
// still serve are better than none (KEP-1669), but never used together with ready ones.
type Phase uint8

// The phases. An endpoint of PhaseNever is not usable.
const (
	PhaseReady Phase = iota
	PhaseTerminating
	PhaseNever
)

// phases is how many there are in which an endpoint is usable.
const phases = 2

// Phase returns when an endpoint may be used. A pod that publishes its address before it is ready, or a ready one that
// terminates, is ready because its slice says so.
func (e *Endpoint) Phase() Phase {
	switch {
	case e.Ready:
		return PhaseReady
	case e.Serving && e.Terminating:
		return PhaseTerminating
	}
	return PhaseNever
}

// Rank says in which order endpoints of several nodes are tried, each rank as a whole before the next one: by what is held
// against their nodes, and then by phase.
type Rank uint8

// Ranks is how many ranks there are.
const Ranks = phases * (1 + NumDemotionReasons)

// Rank returns the endpoint's rank, and whether it may be used at all.
func (e *PortEndpoint) Rank() (rank Rank, usable bool) { return e.rank(e.Demotion) }

// ClusterWideRank returns the rank that all nodes give the endpoint alike.
func (e *PortEndpoint) ClusterWideRank() (rank Rank, usable bool) {
	return e.rank(e.Demotion.ClusterWide())
}

func (e *PortEndpoint) rank(demotion *Demotion) (rank Rank, usable bool) {
	phase := e.Phase()
	return Rank(phase) + phases*demotion.Level(), phase != PhaseNever
}

// IsUnreachable reports whether the endpoint's node does not answer this one.
func (e *PortEndpoint) IsUnreachable() bool {
	return e.Demotion != nil && e.Demotion.Reason == Unreachable
}
