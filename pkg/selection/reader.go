package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Reader makes something of decisions, the same ones that the tables are made from, and keeps it as long as it is in
// force: UDP flows, health checks, DNS records, counts.
//
// All methods but Digest are called by the one goroutine that syncs, and every change of the cluster waits for it. So a
// reader does no I/O in them, nor waits for a goroutine that does: it notes what is new, and others act on it.
//
// Of the frontends a reader knows what the tables know. While one sync is handed over, a frontend that moves may be
// accepted of its new owner before the old owner is heard of: the newest word counts. At Synced no frontend has two
// owners.
type Reader interface {
	// Digest returns what the reader wants to keep of the decisions about a Service, which are one for each port and
	// family; nil if that is nothing. It is called while Services are decided, on all processors at once, and some of
	// what it returns never comes into force: so it depends on nothing but the decisions, and changes nothing. They are
	// shared, and hold the whole cluster in memory: a digest keeps parts of them, and not the decisions.
	Digest(decisions []Decision) any
	// Accept takes the digest of a Service in place of the one before; nil if nothing is in force of it any more, or nothing
	// that the reader keeps. The kernel has taken it. A complete sync hands over every Service anew.
	Accept(service model.ObjectName, digest any)
	// Lose takes frontends from a Service of which everything else stays as it was accepted: it waits for its turn, is
	// written in steps, or the kernel refuses its newest version, and another Service may own them by now. What a Service
	// gains while it is written in steps comes with the last one, by Accept.
	Lose(service model.ObjectName, frontends []model.Frontend)
	// Synced is called at the end of each sync, after what the kernel accepted. The first call says that everything is in
	// force that the cluster has, except for Services that the kernel refuses.
	Synced(sync Sync)
}

// Sync is what surrounds the Services that are in force.
type Sync struct {
	// Complete: everything was written anew, because it was unknown what the kernel held. Nobody knows what it did with
	// connections meanwhile.
	Complete bool
	// Scope is what addresses mean to the tables.
	Scope Scope
	// LocalAddrs are the addresses of the node's interfaces.
	LocalAddrs []netip.Addr
}

// Doubter is a Reader that is told, too, what the kernel may have taken for a moment: an error left that open.
type Doubter interface {
	Reader
	// MayBeInForce gets the digest that was to be accepted. A complete sync follows, which says what is in force.
	MayBeInForce(service model.ObjectName, digest any)
}
