// Package lease reads a Lease that another program renews while a condition holds, and determines the time since the
// last renewal by the reader's own clock. It does not elect a leader.
package lease

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Renewal is the state of a Lease. The zero value is a Lease that does not exist or was never renewed.
type Renewal struct {
	At  time.Time     // by the clock of the program that renewed it
	For time.Duration // how long it is valid; zero if the Lease does not state it
	// Annotations are those of the Lease.
	Annotations map[string]string
}

// timeout limits a request to the API server.
const timeout = 5 * time.Second

// Get reads a Lease. An error is the API server's, with the name of the Lease.
func Get(ctx context.Context, client rest.Interface, namespace, name string) (Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var lease coordinationv1.Lease
	err := client.Get().Namespace(namespace).Resource("leases").Name(name).Do(ctx).Into(&lease)
	switch {
	case apierrors.IsNotFound(err):
		return Renewal{}, nil
	case err != nil:
		return Renewal{}, fmt.Errorf("read Lease %s/%s: %w", namespace, name, err)
	case lease.Spec.RenewTime == nil:
		return Renewal{}, nil
	}
	renewal := Renewal{At: lease.Spec.RenewTime.Time, Annotations: lease.Annotations}
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		renewal.For = time.Duration(*seconds) * time.Second
	}
	return renewal, nil
}

// Observed is a Lease as observed by one reader over time. The zero value was never renewed.
//
// As in client-go's leader election, the clock of the other machine is used only at first, and when renewTime goes
// back. Later, a changed renewTime means that the Lease was renewed since the previous read.
type Observed struct {
	Renewal                  // from the last read
	readAt     time.Time     // the time of the last read by this machine's clock; zero without a Lease
	age        time.Duration // the time since the last renewal, at that time
	wasMissing bool          // there was a Lease, and the last read found none
}

// maxGap is the most that the time between two reads adds to the age of a Lease that was not renewed. Readers read at
// least once a minute, and while the API server is down the Lease cannot be renewed.
const maxGap = time.Minute

// Observe records the result of a read. If there was a Lease, only two consecutive reads without one count: an API
// server that starts may briefly deny access.
func (o *Observed) Observe(now time.Time, renewal Renewal) {
	age, gap := max(0, now.Sub(renewal.At)), now.Sub(o.readAt)
	switch {
	case renewal.At.IsZero() && o.Exists() && !o.wasMissing:
		o.wasMissing = true
		return
	case renewal.At.IsZero():
		*o = Observed{}
		return
	case renewal.At.Equal(o.At):
		o.age += min(gap, maxGap)
	case renewal.At.Before(o.At):
		o.age = age
	default: // at first the gap is unlimited
		o.age = min(age, gap)
	}
	o.Renewal, o.readAt, o.wasMissing = renewal, now, false
}

// Exists reports whether the Lease exists and was ever renewed.
func (o *Observed) Exists() bool { return !o.readAt.IsZero() }

// Age returns how old the last renewal was at the last read.
func (o *Observed) Age() time.Duration { return o.age }

// IsFresh reports whether the Lease exists and was renewed less than freshFor before the last read.
func (o *Observed) IsFresh(freshFor time.Duration) bool { return o.Exists() && o.age < freshFor }

// RenewedAt returns the time of the last renewal by this machine's clock; zero without a Lease.
func (o *Observed) RenewedAt() time.Time {
	if !o.Exists() {
		return time.Time{}
	}
	return o.readAt.Add(-o.age)
}
