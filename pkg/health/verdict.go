package health

import (
	"fmt"
	"time"
)

// Verdict is what can be said of the proxy at one moment.
type Verdict struct {
	At      time.Time
	Healthy bool
	// Ready reports whether a sync has ever succeeded. The rules of an earlier proxy may well be in the kernel before that.
	Ready bool

	// LastSuccess is when the newest successful sync took up its changes; zero if there was none.
	LastSuccess time.Time
	// PendingSince is since when a change has been waiting for a successful sync; zero if none is.
	PendingSince time.Time
	// LastFailure is when a sync failed with LastError, unless one has succeeded since; zero and empty otherwise.
	LastFailure time.Time
	LastError   string
	// Refused are the objects that are left out, a sentence each. They never make the proxy unhealthy: it would be
	// restarted, and a restart mends no object.
	Refused []string
}

// verdict is kube-proxy's rule: unhealthy when a change has been waiting for too long. Both families are changed in the same
// transaction, so one verdict is true of both. Neither time alone nor a failure just now makes the proxy unhealthy.
func (r record) verdict(now time.Time) Verdict {
	return Verdict{
		At:           now,
		Healthy:      r.oldestPending.IsZero() || now.Sub(r.oldestPending) < PendingTimeout,
		Ready:        !r.succeeded.IsZero(),
		LastSuccess:  r.succeeded,
		PendingSince: r.oldestPending,
		LastFailure:  r.failed,
		LastError:    r.failure,
		Refused:      r.refused,
	}
}

// ReadySentence says whether connections are balanced, and if not, why.
func (v Verdict) ReadySentence() string {
	switch {
	case v.Ready:
		return "The first sync is in the kernel."
	case v.LastError != "":
		return fmt.Sprintf("The first sync has not reached the kernel yet; the last attempt failed: %s", v.LastError)
	}
	return "The first sync has not reached the kernel yet."
}
