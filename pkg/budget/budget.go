// Package budget bounds what clients can make a server do for them, such as ask another server, or write into the log.
package budget

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// maxClients bounds the memory. A forgotten client begins anew; what all may do together still holds.
const maxClients = 1024

// Rate is how often something may be done.
type Rate struct {
	PerSecond rate.Limit
	Burst     int // at once
}

// Budget is what each client address may do, and what all may do together. So a client that does something without end
// keeps out only itself, and none at another address. It may be used by several goroutines.
type Budget struct {
	each    Rate
	mutex   sync.Mutex
	clients *lru.Cache // *rate.Limiter by netip.Addr
	all     *rate.Limiter
}

// New returns a budget of which nothing is spent.
func New(each, all Rate) *Budget {
	return &Budget{each: each, clients: lru.New(maxClients), all: rate.NewLimiter(all.PerSecond, all.Burst)}
}

// Spend reports whether a client may do it once more. A client without budget takes nothing from the others'.
func (b *Budget) Spend(now time.Time, client netip.Addr) bool {
	return b.of(client).AllowN(now, 1) && b.all.AllowN(now, 1)
}

func (b *Budget) of(client netip.Addr) *rate.Limiter {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if limiter, known := b.clients.Get(client); known {
		return limiter.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(b.each.PerSecond, b.each.Burst)
	b.clients.Add(client, limiter)
	return limiter
}
