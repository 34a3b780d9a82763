package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Handler derives something from decisions, the same ones that the tables are made from, and keeps it as long as it is
// in force: who owns a frontend, health checks, DNS records, counts.
//
// All methods but Digest are called by the one goroutine that syncs, and every change of the cluster waits for it. So a
// reader must neither do I/O in them nor wait for a goroutine that does: it notes what is new, and others act on it.
//
// A reader knows the same frontends as the tables. While one sync is handed over, a frontend that moves may be accepted
// with its new owner before the old owner loses it: the newest call counts. At Synced no frontend has two owners.
type Handler interface {
	// Derive returns what the reader wants to keep of the decisions about a Service, one for each port and family; nil if
	// that is nothing. It is called while Services are decided, on all processors at once, and some results never come
	// into force: so it must depend only on the decisions, and change nothing. Decisions are shared, and reference the
	// whole cluster: a digest keeps parts of them, never the decisions themselves.
	Derive(decisions []Decision) any
	// OnApplied replaces the digest of a Service; nil if nothing of it is in force any more, or nothing that the reader
	// keeps. The kernel has taken it. A complete sync hands over every Service anew.
	OnApplied(service model.ObjectName, digest any)
	// OnSynced is called at the end of each sync, after what the kernel accepted. The first call means that the whole
	// cluster is in force, except for Services that the kernel refuses.
	OnSynced(sync SyncState)
}

// SyncState is what is in force besides the Services.
type SyncState struct {
	// Full: everything was written anew, because it was unknown what the kernel held, and so what it did with
	// connections meanwhile.
	Full bool
	// Scope is what addresses mean to the tables.
	Scope Scope
	// LocalAddrs are the addresses of the node's interfaces.
	LocalAddrs []netip.Addr
}

// MaybeAppliedHandler is a Reader that also hears what the kernel may have taken for a moment, if an error left that open.
type MaybeAppliedHandler interface {
	Handler
	// OnMaybeApplied gets the digest that was about to be accepted. A complete sync follows, which says what is in force.
	OnMaybeApplied(service model.ObjectName, digest any)
}

// FrontendReader is a Reader that keeps something of each frontend.
type FrontendReader interface {
	Handler
	// OnFrontendsLost takes frontends from a Service. Everything else of it stays as accepted: the Service waits for its turn, is
	// written in steps, or the kernel refuses its newest version, and another Service may own the frontends by now. What a
	// Service gains while it is written in steps comes with the last step, by Accept.
	OnFrontendsLost(service model.ObjectName, frontends []model.Frontend)
}
