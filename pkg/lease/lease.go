// Package lease reads a Lease that somebody renews while something holds, and decides by the reader's own clock how long
// ago that was. It elects nobody.
package lease

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Renewal is what a Lease says. The zero value is a Lease that does not exist, or was never renewed.
type Renewal struct {
	At  time.Time     // by the clock of whoever renewed it
	For time.Duration // how long it is valid; zero if the Lease does not say
}

// timeout is how long the API server may take to answer.
const timeout = 5 * time.Second

// Get reads a Lease. An error is the API server's, and says which Lease.
func Get(ctx context.Context, client rest.Interface, namespace, name string) (Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var lease coordinationv1.Lease
	err := client.Get().Namespace(namespace).Resource("leases").Name(name).Do(ctx).Into(&lease)
	switch {
	case apierrors.IsNotFound(err):
		return Renewal{}, nil
	case err != nil:
		return Renewal{}, fmt.Errorf("reading Lease %s/%s: %w", namespace, name, err)
	case lease.Spec.RenewTime == nil:
		return Renewal{}, nil
	}
	renewal := Renewal{At: lease.Spec.RenewTime.Time}
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		renewal.For = time.Duration(*seconds) * time.Second
	}
	return renewal, nil
}

// Observed is a Lease as one reader has seen it over time. The zero value was never renewed.
//
// As in client-go's leader election, the other machine's clock decides only at first, and when renewTime goes back. After
// that another renewTime means that the Lease was renewed since it was read before.
type Observed struct {
	Renewal                // as it was read last
	at       time.Time     // when that was, by our own clock; zero if there is none
	age      time.Duration // how long ago it had been renewed then
	isMissed bool          // there was one, and the last read found none
}

// maxGap is the most that the time between two reads adds to the age of a Lease that was not renewed. Readers read at
// least once a minute, and while the API server was away nobody could renew it.
const maxGap = time.Minute

// Observe takes in what was read. If there was a Lease, only two reads in a row without one count: an API server that
// starts may forbid for a moment what it otherwise allows.
func (o *Observed) Observe(now time.Time, read Renewal) {
	age, gap := max(0, now.Sub(read.At)), now.Sub(o.at)
	switch {
	case read.At.IsZero() && o.Exists() && !o.isMissed:
		o.isMissed = true
		return
	case read.At.IsZero():
		*o = Observed{}
		return
	case read.At.Equal(o.At):
		o.age += min(gap, maxGap)
	case read.At.Before(o.At):
		o.age = age
	default: // at first the gap has no end
		o.age = min(age, gap)
	}
	o.Renewal, o.at, o.isMissed = read, now, false
}

// Exists reports whether there is a Lease that was ever renewed.
func (o *Observed) Exists() bool { return !o.at.IsZero() }

// Age returns how long ago the Lease had been renewed when it was read last.
func (o *Observed) Age() time.Duration { return o.age }

// IsFresh reports whether there is a Lease, and it was renewed less than goodFor before it was read last.
func (o *Observed) IsFresh(goodFor time.Duration) bool { return o.Exists() && o.age < goodFor }

// RenewedAt returns when the Lease was renewed last, by our own clock; zero if there is none.
func (o *Observed) RenewedAt() time.Time {
	if !o.Exists() {
		return time.Time{}
	}
	return o.at.Add(-o.age)
}
