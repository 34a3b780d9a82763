package authorization

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// clientReviews a second, and clientBurst at once, are what one client address can make us ask the API server about
	// tokens that it did not allow before. A scraper needs one for each new token.
	clientReviews, clientBurst = 1, 10
	// allReviews a second, and allBurst at once, are the same for all addresses together.
	allReviews, allBurst = 20, 100
	// maxClients bounds the memory. A forgotten client begins anew; allReviews still holds.
	maxClients = 1024
)

// budgets bound what strangers can make us ask the API server. Each client address has its own, so that a client that
// tries tokens without end keeps out only itself, and no scraper at another address.
type budgets struct {
	mutex   sync.Mutex
	clients *lru.Cache // *rate.Limiter by netip.Addr
	all     *rate.Limiter
}

func newBudgets() *budgets {
	return &budgets{clients: lru.New(maxClients), all: rate.NewLimiter(allReviews, allBurst)}
}

// spend says whether a client may make us ask once more. A client without budget takes nothing from the others'.
func (b *budgets) spend(now time.Time, client netip.Addr) bool {
	return b.of(client).AllowN(now, 1) && b.all.AllowN(now, 1)
}

func (b *budgets) of(client netip.Addr) *rate.Limiter {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if limiter, known := b.clients.Get(client); known {
		return limiter.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(clientReviews, clientBurst)
	b.clients.Add(client, limiter)
	return limiter
}
