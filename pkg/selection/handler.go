package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Handler derives state from decisions, the same ones that the tables are made from, and keeps it while they are
// applied: the owner of a frontend, health checks, DNS records, counts.
//
// All methods but Derive are called by the one goroutine that syncs, and every change of the cluster waits for them. So
// a handler must neither do I/O in them nor wait for a goroutine that does: it records the new state, and other
// goroutines act on it.
//
// Handlers see the same frontends as the tables. During one sync, a frontend that moves may be applied to its new owner
// before the old owner loses it; the later call wins. At OnSynced no frontend has two owners.
type Handler interface {
	// Derive returns the state to keep of the decisions about a Service, of which there is one for each port and family.
	// nil means none. Derive is called while Services are decided, concurrently on all processors, and some results are
	// never applied. So it must depend only on the decisions and have no side effects. Decisions are shared and reference
	// the whole cluster: the result may keep parts of them, but never a decision itself.
	Derive(decisions []Decision) any
	// OnApplied replaces the state of a Service after the kernel accepted its rules. A nil digest means that nothing of
	// the Service is applied any more, or nothing that the handler keeps. A full sync applies every Service again.
	OnApplied(service model.ObjectName, digest any)
	// OnSynced is called at the end of each sync, after OnApplied for everything that the kernel accepted. The first call
	// means that the whole cluster is applied, except for Services that the kernel rejects.
	OnSynced(sync SyncState)
}

// SyncState is the applied state other than Services.
type SyncState struct {
	// Full is set if everything was rewritten because the kernel's state was unknown. How connections were treated until
	// then is unknown, too.
	Full bool
	// Scope is the meaning of addresses in the tables.
	Scope Scope
	// LocalAddrs are the addresses of the node's interfaces.
	LocalAddrs []netip.Addr
}

// MaybeAppliedHandler is a Handler that also handles state that the kernel may have applied briefly, because an error
// left the outcome of a commit unknown.
type MaybeAppliedHandler interface {
	Handler
	// OnMaybeApplied is called with the digest that was about to be applied. A full sync follows, which settles what is
	// applied.
	OnMaybeApplied(service model.ObjectName, digest any)
}

// FrontendHandler is a Handler that keeps state of each frontend.
type FrontendHandler interface {
	Handler
	// OnFrontendsLost removes frontends from a Service. All its other state stays as applied: the Service is queued, is
	// written in steps, or the kernel rejected its newest version, and another Service may own the frontends by now.
	// Frontends that a Service gains while it is written in steps come with the last step, by OnApplied.
	OnFrontendsLost(service model.ObjectName, frontends []model.Frontend)
}
