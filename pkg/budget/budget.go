// Package budget limits what clients can make a server do, such as send requests to another server or write to the log.
package budget

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// maxClients bounds the memory. An evicted client starts with a full budget; the limit for all clients still applies.
const maxClients = 1024

// Rate is a rate limit.
type Rate struct {
	PerSecond rate.Limit
	Burst     int
}

// Budget limits each client address, and all of them together. So a client that exceeds its limit blocks only its own
// address. It is safe for concurrent use.
type Budget struct {
	perClient Rate
	mutex     sync.Mutex
	clients   *lru.Cache // *rate.Limiter by netip.Addr
	total     *rate.Limiter
}

// New returns a full budget.
func New(perClient, total Rate) *Budget {
	return &Budget{perClient: perClient, clients: lru.New(maxClients), total: rate.NewLimiter(total.PerSecond, total.Burst)}
}

// Spend reports whether a client may act once more. A client that exceeds its own limit does not use up
// the limit for all clients.
func (b *Budget) Spend(now time.Time, client netip.Addr) bool {
	return b.limiterOf(client).AllowN(now, 1) && b.total.AllowN(now, 1)
}

func (b *Budget) limiterOf(client netip.Addr) *rate.Limiter {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if limiter, known := b.clients.Get(client); known {
		return limiter.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(b.perClient.PerSecond, b.perClient.Burst)
	b.clients.Add(client, limiter)
	return limiter
}
