package model

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// EndpointSlice is the part of a discovery/v1 EndpointSlice that the proxy uses.
type EndpointSlice struct {
	Name    ObjectName
	Service ObjectName // from the label kubernetes.io/service-name; the namespace is the slice's
	Family  Family     // addressType
	// IsHeadless is set for a slice with the label of headless Services. It serves only those.
	IsHeadless bool
	// FQDNCount is the number of endpoints with names instead of addresses (addressType FQDN). Such a slice has no other
	// endpoints and serves no clients. It is kept so that it can be reported.
	FQDNCount uint16
	// MultiAddressCount is the number of endpoints with more than one address. All addresses but the first are ignored.
	MultiAddressCount uint16
	Ports             []SlicePort
	Endpoints         []SliceEndpoint
	// Hostnames are the endpoints' names below the name of a headless Service, in the order of Endpoints and often empty.
	// nil means that no endpoint has one, or that they are not needed.
	Hostnames []string

	TriggeredAt time.Time // the EndpointSlice controller's timestamp for the cause of this version; zero if it set none

	// Findings are the parts of the object that have no effect, while the rest is served.
	Findings []Finding
}

// isOn reports whether an endpoint is on one of the nodes.
func (s *EndpointSlice) isOn(nodes map[string]bool) bool {
	return slices.ContainsFunc(s.Endpoints, func(endpoint SliceEndpoint) bool { return nodes[endpoint.Node] })
}

// dependsOnLabel reports whether an endpoint's value of a key comes from a label of one of the nodes. The node name,
// and usually the zone, come from the slice.
func (s *EndpointSlice) dependsOnLabel(key policy.Key, nodes map[string]bool) bool {
	return slices.ContainsFunc(s.Endpoints, func(endpoint SliceEndpoint) bool {
		return (key != policy.Zone || endpoint.Zone == "") && nodes[endpoint.Node]
	})
}

// SlicePort is a port that every endpoint of a slice serves. It belongs to the Service port with the same name and
// protocol.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// SliceEndpoint is one entry of a slice's endpoints, with the first of its addresses, the only one that may be used
// (KEP-752).
type SliceEndpoint struct {
	Addr netip.Addr
	Endpoint
}

// Endpoint has the properties that decide whether traffic may go to an endpoint. Nil conditions of the API object are
// resolved: ready and serving default to true, terminating to false.
type Endpoint struct {
	Node string // empty if unknown
	Zone string // from the slice; empty if unknown

	Ready       bool
	Serving     bool
	Terminating bool

	// HintNodes and HintZones are the nodes and zones for which the EndpointSlice controller intends the endpoint. nil and
	// empty both mean no hint. A hint may name the empty zone; the API accepts it.
	HintNodes []string
	HintZones []string
}

// PortEndpoint is an endpoint of one Service port.
type PortEndpoint struct {
	Addr netip.AddrPort
	Endpoint
	// Demotion is why the endpoint is tried last because of its node; nil if it is not.
	Demotion *Demotion
}

// Phase is the order in which endpoints are tried: all of one phase before the next. Terminating endpoints that still
// serve are better than none (KEP-1669), but are never used together with ready ones.
type Phase uint8

// The phases. An endpoint in PhaseNever is not usable.
const (
	PhaseReady Phase = iota
	PhaseTerminating
	PhaseNever
)

// numPhases is the number of phases in which an endpoint is usable.
const numPhases = 2

// Phase returns the phase in which the endpoint may be used. The slice is authoritative: it also lists as ready a pod
// that publishes its address before it is ready, or while it terminates.
func (e *Endpoint) Phase() Phase {
	switch {
	case e.Ready:
		return PhaseReady
	case e.Serving && e.Terminating:
		return PhaseTerminating
	}
	return PhaseNever
}

// Rank is the order in which endpoints of several nodes are tried: all of one rank before the next. It is ordered by
// the demotion of the node, then by phase.
type Rank uint8

// NumRanks is the number of ranks.
const NumRanks = numPhases * (1 + NumDemotionReasons)

// Rank returns the endpoint's rank, and whether the endpoint is usable at all.
func (e *PortEndpoint) Rank() (rank Rank, usable bool) { return e.rank(e.Demotion) }

// ClusterWideRank returns the rank that is the same on all nodes.
func (e *PortEndpoint) ClusterWideRank() (rank Rank, usable bool) {
	return e.rank(e.Demotion.ClusterWide())
}

func (e *PortEndpoint) rank(demotion *Demotion) (rank Rank, usable bool) {
	phase := e.Phase()
	return Rank(phase) + numPhases*demotion.Level(), phase != PhaseNever
}

// IsUnreachable reports whether the endpoint's node does not reply to this one.
func (e *PortEndpoint) IsUnreachable() bool {
	return e.Demotion != nil && e.Demotion.Reason == Unreachable
}
