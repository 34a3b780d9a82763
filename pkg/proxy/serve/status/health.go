package status

import (
	"fmt"
	"time"
)

// Health is the health of the proxy at one time. A zero time means never, or none.
type Health struct {
	At      time.Time
	Healthy bool
	// Ready reports whether a sync has ever succeeded. Before that, the kernel may still have the rules of an earlier
	// proxy.
	Ready bool

	// LastSuccess is when the newest successful sync collected its changes; zero if there was none.
	LastSuccess time.Time
	// PendingSince is since when a change has been pending; zero if none is.
	PendingSince time.Time
	// LastFailure is when a sync failed with LastError; zero and empty if one has succeeded since.
	LastFailure time.Time
	LastError   string
	// NodeEligible reports whether the node's own state allows load balancers to use it. IneligibleReason is the reason if not.
	NodeEligible     bool
	IneligibleReason string
	// Interruptions are the resources whose watches are interrupted, by name. They never make the proxy unhealthy: its
	// state stays applied, and a restart would not reach the API server either.
	Interruptions []Interruption
	// OtherProxies are the other service proxies on this node, one sentence each. They never make the proxy unhealthy: a
	// restart would not remove them.
	OtherProxies []string
	// InvalidObjects counts the invalid objects. They never make the proxy unhealthy: it would be restarted, and a restart
	// does not fix an object.
	InvalidObjects int
}

// Interruption is a resource whose watch is interrupted.
type Interruption struct {
	Resource string    `json:"resource"`
	Since    time.Time `json:"since"`
	Reason   string    `json:"reason"`
}

// ReadySentence returns a sentence on whether the proxy is ready, and if not, why.
func (h Health) ReadySentence() string {
	switch {
	case h.Ready:
		return "The first sync is in the kernel."
	case h.LastError != "":
		return fmt.Sprintf("The first sync has not reached the kernel yet; the last attempt failed: %s", h.LastError)
	case len(h.Interruptions) > 0:
		first := h.Interruptions[0]
		return fmt.Sprintf("The first sync has not reached the kernel yet; the watch of %s is interrupted: %s",
			first.Resource, first.Reason)
	}
	return "The first sync has not reached the kernel yet; waiting for the complete state of the cluster."
}
