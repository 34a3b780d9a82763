//go:build linux

package serviceindex

import (
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Snapshot is the state that one sync applied. It is immutable.
type Snapshot struct {
	// RemovalsRecordedSince is the time since which all removed endpoints are recorded: the end of the first sync, or of a
	// later one after which some were evicted because there were too many.
	RemovalsRecordedSince time.Time
	// Scope defines the meaning of addresses in the tables.
	Scope selection.Scope
	// Number is the number of syncs so far.
	Number uint64

	// lastFullSync is the number of the last full sync; lastNodePortsChange that of the last sync that changed the
	// addresses on which node ports are served.
	lastFullSync, lastNodePortsChange uint64
	// lastChanged is the number of the last sync after which UDP flows may be stale, by family.
	lastChanged map[model.Family]uint64

	shards [shards]map[model.Frontend]*Frontend
}

// A change copies the shards that it touches. With 256 shards, one change among 100,000 frontends copies 400.
const shards = 256

var seed = maphash.MakeSeed()

func shardOf(frontend model.Frontend) uint8 { return uint8(maphash.Comparable(seed, frontend)) }

// Frontend is a frontend with the Service port that owns it.
type Frontend struct {
	*Port
	model.Frontend // its Port is the destination port number
	Kind           model.FrontendKind
	// internalLocal and externalLocal are set if a traffic policy keeps connections from internal or external clients on
	// this node.
	internalLocal, externalLocal bool
	// lastChanged is the number of the last sync after which connections, or their absence, may violate the rules: fewer
	// endpoints or clients were allowed, the first endpoint was added, or the frontend itself was added or removed.
	lastChanged uint64
}

// Port is a Service port in one family: what all its frontends have in common.
type Port struct {
	Service  model.ObjectName
	Name     string
	Protocol model.Protocol

	// clusterEndpoints are the endpoints that may serve connections; localEndpoints are those on this node, to which a
	// traffic policy restricts connections. Both are sorted.
	clusterEndpoints, localEndpoints []netip.AddrPort
	// establishedOnly are the endpoints that may keep established connections but get no new ones; sorted.
	establishedOnly []netip.AddrPort
	// sources are the clients that may connect to a load balancer's address; empty means all.
	sources      model.Prefixes
	attributions *attributions
}

// Lookup returns the frontend of a destination address. A frontend with its own address takes precedence over a node
// port, as in the tables. Lookup does not check that the address serves node ports.
func (s *Snapshot) Lookup(protocol model.Protocol, origDst netip.AddrPort) *Frontend {
	key := model.Frontend{Addr: origDst.Addr(), Protocol: protocol, Port: origDst.Port()}
	if found := s.frontend(key); found != nil {
		return found
	}
	key.Addr = model.AnyAddr(model.FamilyOf(origDst.Addr()))
	return s.frontend(key)
}

// HasFrontendAt reports whether there is a TCP frontend at exactly this address; node ports do not count.
func (s *Snapshot) HasFrontendAt(addr netip.AddrPort) bool {
	return s.frontend(model.Frontend{Addr: addr.Addr(), Protocol: model.TCP, Port: addr.Port()}) != nil
}

func (s *Snapshot) frontend(frontend model.Frontend) *Frontend {
	return s.shards[shardOf(frontend)][frontend]
}

// ChangedAfter returns the families in which UDP flows may have become stale after the sync with the given number. For
// 0 it returns all families, because an earlier proxy may have served frontends that no longer exist.
func (s *Snapshot) ChangedAfter(number uint64) []model.Family {
	return slices.DeleteFunc(slices.Clone(model.Families),
		func(family model.Family) bool { return number > 0 && s.lastChanged[family] <= number })
}

// isChanged reports whether connections to a frontend may have become stale after the sync with the given number.
func (s *Snapshot) isChanged(f *Frontend, after uint64) bool {
	return max(f.lastChanged, s.lastFullSync) > after || f.IsNodePort() && s.lastNodePortsChange > after
}

// recordChange records that flows to a frontend may be stale.
func (s *Snapshot) recordChange(f *Frontend) {
	if family := model.FamilyOf(f.Addr); f.Port.Protocol == model.UDP && s.lastChanged[family] != s.Number {
		s.lastChanged = maps.Clone(s.lastChanged) // earlier snapshots have the same map
		s.lastChanged[family] = s.Number
	}
}

// Allows reports whether an endpoint may serve a client that connected to the frontend. It determines the client's
// origin only if the result depends on it. It returns true if the origin is unknown or cannot be determined.
func (f *Frontend) Allows(endpoint netip.AddrPort, client netip.Addr, scope selection.Scope, isLocal selection.IsLocal) (bool, error) {
	if f.Kind == model.LoadBalancerIP && len(f.sources) > 0 && !f.sources.Contains(client) {
		return false, nil
	}
	internal, external := contains(f.internalEndpoints(), endpoint), contains(f.externalEndpoints(), endpoint)
	if internal == external {
		return internal, nil
	}
	switch origin, err := scope.OriginOf(client, isLocal); {
	case err != nil:
		return true, err
	case origin == selection.Internal:
		return internal, nil
	case origin == selection.External:
		return external, nil
	}
	return true, nil
}

// KeepsEstablished reports whether an established connection to an endpoint may continue although no new one may be
// opened, because the endpoint's node does not reply at present.
func (f *Frontend) KeepsEstablished(endpoint netip.AddrPort) bool {
	return contains(f.establishedOnly, endpoint)
}

// IsServed reports whether any endpoint may serve any client.
func (f *Frontend) IsServed() bool { return len(f.internalEndpoints())+len(f.externalEndpoints()) > 0 }

// internalEndpoints returns the endpoints that may serve pods and this node, externalEndpoints those that may serve all
// other clients.
func (f *Frontend) internalEndpoints() []netip.AddrPort {
	if f.internalLocal {
		return f.localEndpoints
	}
	return f.clusterEndpoints
}

func (f *Frontend) externalEndpoints() []netip.AddrPort {
	if f.externalLocal {
		return f.localEndpoints
	}
	return f.clusterEndpoints
}

// NodeOf returns the node of an endpoint. It reports false if the endpoint may not serve the port's connections.
func (p *Port) NodeOf(endpoint netip.AddrPort) (string, bool) {
	if !contains(p.clusterEndpoints, endpoint) {
		return "", false
	}
	return p.attributions.find(endpoint).node, true
}

// HasEndpoint reports whether the port has an endpoint, in whatever state.
func (p *Port) HasEndpoint(endpoint netip.AddrPort) bool { return p.attributions.find(endpoint) != nil }

func contains(sorted []netip.AddrPort, endpoint netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, endpoint, netip.AddrPort.Compare)
	return found
}
