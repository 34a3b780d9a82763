//go:build linux

package flows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/accounting"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Report lists the Services to which a node has connections.
//
// Its JSON names are an interface: scripts parse them.
type Report struct {
	Node string `json:"node"`
	// Services lists the Services that have connections, by the number of unreplied connections, then by the number of
	// connections to other zones, largest first. It is never null.
	Services []Service `json:"services"`
	// OtherPrograms counts the connections that other programs translated, to Services or not: possibly a proxy that ran
	// here earlier.
	OtherPrograms int `json:"otherPrograms"`
	// CountsBytes reports whether conntrack counts bytes.
	CountsBytes bool `json:"countsBytes"`
}

// Service counts the connections of one Service.
type Service struct {
	Service string `json:"service"` // namespace/name
	Counts
	// ByLocality counts established and unreplied connections by the locality of their endpoint: same_node, same_zone,
	// other_zone, unknown.
	ByLocality map[string]int `json:"byLocality"`
	Endpoints  []Endpoint     `json:"endpoints"`
}

// Endpoint counts the connections of a Service to one endpoint.
type Endpoint struct {
	Endpoint string `json:"endpoint"`
	Protocol string `json:"protocol"`
	Node     string `json:"node"` // empty if unknown
	Zone     string `json:"zone"` // empty if unknown
	// Locality is the endpoint's location relative to this node.
	Locality string `json:"locality"`
	// Tier is the first topology key of the Service that the endpoint matches on this node, "hint" if topology hints
	// select it, and "none" otherwise.
	Tier string `json:"tier"`
	// Removed reports whether the address is no longer an endpoint of the Service.
	Removed bool `json:"removed"`
	Counts
}

// Counts are numbers of connections.
type Counts struct {
	// Established connections have a reply and may continue. Unreplied ones have none yet.
	Established int `json:"open"`
	Unreplied   int `json:"unanswered"`
	// Ending connections are closed; their conntrack entries have not expired yet.
	Ending int `json:"ending"`
	// Sent and Received are the bytes of all these connections, from the client's point of view.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

func (c *Counts) add(more Counts) {
	c.Established += more.Established
	c.Unreplied += more.Unreplied
	c.Ending += more.Ending
	c.Sent += more.Sent
	c.Received += more.Received
}

// countsOf returns the counts of one entry.
func countsOf(e *conntrack.Entry) Counts {
	switch {
	case e.Status&conntrack.SeenReply == 0:
		return Counts{Unreplied: 1, Sent: e.Sent.Bytes}
	case accounting.IsClosed(e):
		return Counts{Ending: 1, Sent: e.Sent.Bytes, Received: e.Received.Bytes}
	}
	return Counts{Established: 1, Sent: e.Sent.Bytes, Received: e.Received.Bytes}
}

// Snapshot builds a report from conntrack entries.
type Snapshot struct {
	index  *serviceindex.Index
	nodes  map[serviceEndpoint]string
	filter func(model.ObjectName) bool

	services      map[model.ObjectName]map[address]*Endpoint
	otherPrograms int
	hasBytes      bool
}

// address is the address of an endpoint.
type address struct {
	protocol model.Protocol
	addr     netip.AddrPort
}

// serviceEndpoint is an endpoint address of a Service.
type serviceEndpoint struct {
	service model.ObjectName
	address
}

// NewSnapshot returns an empty Snapshot for a cluster state. Its reports contain only Services for which filter returns
// true.
func NewSnapshot(cluster *model.Cluster, families []model.Family, filter func(model.ObjectName) bool) *Snapshot {
	s := &Snapshot{
		index: serviceindex.New(0), nodes: map[serviceEndpoint]string{}, filter: filter,
		services: map[model.ObjectName]map[address]*Endpoint{},
	}
	planner := selection.NewPlanner(cluster)
	for _, name := range cluster.ServiceNames() {
		decisions := planner.Decide(name, families)
		s.index.OnApplied(name, s.index.Derive(decisions))
		for i := range decisions {
			for j := range decisions[i].Endpoints {
				endpoint := &decisions[i].Endpoints[j]
				s.nodes[serviceEndpoint{name, address{decisions[i].Port.Protocol, endpoint.Addr}}] = endpoint.Node
			}
		}
	}
	s.index.OnSynced(selection.SyncState{})
	return s
}

// Add counts an entry.
func (s *Snapshot) Add(e *conntrack.Entry) {
	if e.Status&conntrack.DestinationNAT == 0 {
		return
	}
	s.hasBytes = s.hasBytes || e.Sent.Bytes > 0
	origin := s.index.Attribute(e)
	switch {
	case origin == nil:
		s.otherPrograms++
		return
	case !s.filter(origin.Service):
		return
	}
	key := address{e.Protocol, e.ReplySrc()}
	endpoints := s.services[origin.Service]
	if endpoints == nil {
		endpoints = map[address]*Endpoint{}
		s.services[origin.Service] = endpoints
	}
	if endpoints[key] == nil {
		node, isKnown := s.nodes[serviceEndpoint{origin.Service, key}]
		endpoints[key] = &Endpoint{
			Endpoint: key.addr.String(), Protocol: e.Protocol.String(), Node: node, Zone: origin.Placement.Zone,
			Locality: origin.Placement.Proximity.String(), Tier: origin.Placement.Tier, Removed: !isKnown,
		}
	}
	endpoints[key].add(countsOf(e))
}

// AddAll counts all translated connections in a table.
func (s *Snapshot) AddAll(ctx context.Context, table conntrack.Table) error {
	translated := conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT}
	_, err := table.Dump(ctx, translated, func(e *conntrack.Entry) bool { s.Add(e); return true })
	if err != nil && !errors.Is(err, conntrack.ErrInterrupted) { // a dump of a changing table may miss entries anyway
		return fmt.Errorf("read connection table: %w", err)
	}
	return nil
}

// Report returns the counts and resets the Snapshot.
func (s *Snapshot) Report(node string) Report {
	report := Report{Node: node, Services: make([]Service, 0, len(s.services)), OtherPrograms: s.otherPrograms, CountsBytes: s.hasBytes}
	for _, name := range slices.SortedFunc(maps.Keys(s.services), model.ObjectName.Compare) {
		service := Service{Service: name.String(), ByLocality: map[string]int{}}
		for _, proximity := range serviceindex.Proximities {
			service.ByLocality[proximity.String()] = 0
		}
		for _, endpoint := range s.services[name] {
			service.Endpoints = append(service.Endpoints, *endpoint)
			service.add(endpoint.Counts)
			service.ByLocality[endpoint.Locality] += endpoint.Established + endpoint.Unreplied
		}
		slices.SortFunc(service.Endpoints, func(a, b Endpoint) int {
			return cmp.Or(compareRows(a.Counts, b.Counts, a.crossZone(), b.crossZone()), cmp.Compare(a.Endpoint, b.Endpoint),
				cmp.Compare(a.Protocol, b.Protocol))
		})
		report.Services = append(report.Services, service)
	}
	slices.SortStableFunc(report.Services, func(a, b Service) int {
		return compareRows(a.Counts, b.Counts, a.crossZone(), b.crossZone())
	})
	s.services, s.otherPrograms, s.hasBytes = map[model.ObjectName]map[address]*Endpoint{}, 0, false
	return report
}

// crossZone returns the number of connections to other zones.
func (s *Service) crossZone() int { return s.ByLocality[serviceindex.OtherZone.String()] }

func (e *Endpoint) crossZone() int {
	if e.Locality != serviceindex.OtherZone.String() {
		return 0
	}
	return e.Established + e.Unreplied
}

// compareRows orders by unreplied, cross-zone, established and ending connections, in this order, largest first.
func compareRows(a, b Counts, aCrosses, bCrosses int) int {
	return cmp.Or(
		cmp.Compare(b.Unreplied, a.Unreplied), cmp.Compare(bCrosses, aCrosses), cmp.Compare(b.Established, a.Established),
		cmp.Compare(b.Ending, a.Ending),
	)
}
