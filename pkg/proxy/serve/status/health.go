package status

import (
	"fmt"
	"time"
)

// Health is what can be said about the proxy at one moment. A zero time means: never, or nothing.
type Health struct {
	At      time.Time
	Healthy bool
	// Ready reports whether a sync has ever succeeded. The rules of an earlier proxy may well be in the kernel before
	// that.
	Ready bool

	// LastSuccess is when the newest successful sync took up its changes; zero if there was none.
	LastSuccess time.Time
	// PendingSince is since when a change has been waiting for a successful sync; zero if none is.
	PendingSince time.Time
	// LastFailure is when a sync failed with LastError, unless one has succeeded since; zero and empty otherwise.
	LastFailure time.Time
	LastError   string
	// NodeEligible reports whether load balancers may use this node, as far as the node is concerned; NotEligible is why
	// they may not.
	NodeEligible bool
	NotEligible  string
	// Interruptions are the resources whose watches are interrupted, by name. They never make the proxy
	// unhealthy: what it knows stays in force, and a restart would not find the API server either.
	Interruptions []Interruption
	// OtherProxies are the other service proxies on this node, a sentence each. They never make the proxy unhealthy: a
	// restart would not remove them.
	OtherProxies []string
	// InvalidObjects counts the objects that are left out. They never make the proxy unhealthy: it would be restarted, and a
	// restart does not mend an object.
	InvalidObjects int
}

// Interruption is a resource whose watch is interrupted.
type Interruption struct {
	Resource string    `json:"resource"`
	Since    time.Time `json:"since"`
	Reason   string    `json:"reason"`
}

// ReadySentence says whether connections are balanced, and if not, why.
func (v Health) ReadySentence() string {
	switch {
	case v.Ready:
		return "The first sync is in the kernel."
	case v.LastError != "":
		return fmt.Sprintf("The first sync has not reached the kernel yet; the last attempt failed: %s", v.LastError)
	case len(v.Interruptions) > 0:
		first := v.Interruptions[0]
		return fmt.Sprintf("The first sync has not reached the kernel yet; the API server sends nothing about %s: %s",
			first.Resource, first.Reason)
	}
	return "The first sync has not reached the kernel yet; it waits for the complete state of the cluster."
}
