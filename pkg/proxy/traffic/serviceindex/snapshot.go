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

// Snapshot is what was in force after one sync. It never changes.
type Snapshot struct {
	// RemovedKnownSince is the time from which on it is known which endpoints left: the end of the first sync, or of one after which too
	// many had left.
	RemovedKnownSince time.Time
	// Scope is what addresses mean to the tables.
	Scope selection.Scope
	// Number is how many syncs there were.
	Number uint64

	// rewritten is the number of the last sync that was complete, moved that of the last one after which node ports were
	// served on other addresses.
	rewritten, moved uint64
	// changed says which sync was the last one after which flows of UDP may be stale.
	changed map[model.Family]uint64

	shards [shards]map[model.Frontend]*Frontend
}

// A change copies the parts that it changes. With 256 of them one of 100,000 frontends copies 400.
const shards = 256

var seed = maphash.MakeSeed()

func shardOf(frontend model.Frontend) uint8 { return uint8(maphash.Comparable(seed, frontend)) }

// Frontend is a frontend and whose it is.
type Frontend struct {
	*Port
	model.Frontend // its Port is the number that is dialled
	Kind           model.FrontendKind
	// A policy keeps connections from inside, or from outside, on this node.
	internalLocal, externalLocal bool
	// changed is the number of the sync since which somebody who was answered, or was not, may be wrong: the last one
	// after which fewer endpoints or clients were allowed, or the first endpoint came, or the frontend itself came or went.
	changed uint64
}

// Port is a Service's port in one family: what all its frontends have in common.
type Port struct {
	Service  model.ObjectName
	Name     string
	Protocol model.Protocol

	// clusterEndpoints are the endpoints that may answer, here those of them on this node that a policy keeps connections on; both
	// are sorted.
	clusterEndpoints, localEndpoints []netip.AddrPort
	// establishedOnly are the endpoints that may answer open connections, and no new ones; sorted.
	establishedOnly []netip.AddrPort
	// sources are the clients that may dial a load balancer's address; empty: all.
	sources model.Prefixes
	origins *attributions
}

// Lookup returns the frontend that was dialled. One with an address of its own comes before a node port, as in the tables.
// It does not check that the address serves node ports.
func (s *Snapshot) Lookup(protocol model.Protocol, dialled netip.AddrPort) *Frontend {
	exact := model.Frontend{Addr: dialled.Addr(), Protocol: protocol, Port: dialled.Port()}
	if found := s.frontend(exact); found != nil {
		return found
	}
	exact.Addr = model.AnyAddr(model.FamilyOf(dialled.Addr()))
	return s.frontend(exact)
}

// HasFrontendAt reports whether there is a TCP frontend at an address of its own: not a node port.
func (s *Snapshot) HasFrontendAt(addr netip.AddrPort) bool {
	return s.frontend(model.Frontend{Addr: addr.Addr(), Protocol: model.TCP, Port: addr.Port()}) != nil
}

func (s *Snapshot) frontend(frontend model.Frontend) *Frontend {
	return s.shards[shardOf(frontend)][frontend]
}

// ChangedAfter returns the families in which flows of UDP may have become stale after the sync with a number: all of them
// after none, for an earlier proxy may have served what nobody serves now.
func (s *Snapshot) ChangedAfter(number uint64) []model.Family {
	return slices.DeleteFunc(slices.Clone(model.Families), func(family model.Family) bool { return number > 0 && s.changed[family] <= number })
}

// isChanged reports whether connections to a frontend may have become stale after the sync with a number.
func (s *Snapshot) isChanged(f *Frontend, after uint64) bool {
	return max(f.changed, s.rewritten) > after || f.IsNodePort() && s.moved > after
}

// recordChange notes that flows to a frontend may be stale.
func (s *Snapshot) recordChange(f *Frontend) {
	if family := model.FamilyOf(f.Addr); f.Port.Protocol == model.UDP && s.changed[family] != s.Number {
		s.changed = maps.Clone(s.changed) // earlier snapshots have the same map
		s.changed[family] = s.Number
	}
}

// Allows reports whether an endpoint may answer a client that dialled the frontend. It looks up where the client is
// only if that makes a difference; after an error, and where that is uncertain, it reports true.
func (f *Frontend) Allows(endpoint netip.AddrPort, client netip.Addr, scope selection.Scope, isLocal selection.IsLocal) (bool, error) {
	if f.Kind == model.LoadBalancerIP && len(f.sources) > 0 && !f.sources.Contains(client) {
		return false, nil
	}
	inside, outside := contains(f.internalEndpoints(), endpoint), contains(f.externalEndpoints(), endpoint)
	if inside == outside {
		return inside, nil
	}
	switch origin, err := scope.OriginOf(client, isLocal); {
	case err != nil:
		return true, err
	case origin == selection.Internal:
		return inside, nil
	case origin == selection.External:
		return outside, nil
	}
	return true, nil
}

// KeepsEstablished reports whether a connection to an endpoint that is open may stay, though no new one may go there: the
// endpoint's node does not answer at present.
func (f *Frontend) KeepsEstablished(endpoint netip.AddrPort) bool {
	return contains(f.establishedOnly, endpoint)
}

// IsServed reports whether any endpoint may answer any client.
func (f *Frontend) IsServed() bool { return len(f.internalEndpoints())+len(f.externalEndpoints()) > 0 }

// internalEndpoints and outside are the endpoints that may answer pods and this node, and all other clients.
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

// NodeOf returns the node of an endpoint. It reports false if the endpoint may not answer the port's connections.
func (p *Port) NodeOf(endpoint netip.AddrPort) (string, bool) {
	if !contains(p.clusterEndpoints, endpoint) {
		return "", false
	}
	return p.origins.find(endpoint).node, true
}

func contains(sorted []netip.AddrPort, endpoint netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, endpoint, netip.AddrPort.Compare)
	return found
}
