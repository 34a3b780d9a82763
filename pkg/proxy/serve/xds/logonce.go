package xds

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/vicinity-proxy/vicinity/pkg/budget"
)

const (
	// loggedFor is how long the same is not logged again of a client.
	loggedFor = time.Hour
	// maxLogged bounds how much is remembered. All clients together cannot have more than that logged in loggedFor.
	maxLogged = logBurst + int(loggedFor/logEvery)

	// clientLogEvery and clientLogBurst are how often something new is logged of one client. The metrics count the rest.
	clientLogEvery, clientLogBurst = 3 * time.Minute, 20
	// logEvery and logBurst are the same for all clients together: one that has many addresses must not fill the log either.
	logEvery, logBurst = 3 * time.Second, 500
)

// logged remembers what was logged of clients, one kind of thing, so that the log stays short whatever they send. No client
// can keep another one's lines out of it, and what was not logged for want of budget can be logged later. The zero value
// remembers nothing.
type logged struct {
	mutex  sync.Mutex
	budget *budget.Budget
	before *lru.Cache // time.Time by line
}

// line is something that was logged of a client.
type line struct {
	client netip.Addr
	what   string
}

// isNew reports whether something should be logged of a client, and remembers it then.
func (l *logged) isNew(now time.Time, client netip.Addr, what string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.budget == nil {
		each := budget.Rate{PerSecond: rate.Every(clientLogEvery), Burst: clientLogBurst}
		l.budget = budget.New(each, budget.Rate{PerSecond: rate.Every(logEvery), Burst: logBurst})
		l.before = lru.New(maxLogged)
	}
	if at, has := l.before.Get(line{client, what}); has && now.Sub(at.(time.Time)) < loggedFor {
		return false
	}
	if !l.budget.Spend(now, client) {
		return false
	}
	l.before.Add(line{client, what}, now)
	return true
}
