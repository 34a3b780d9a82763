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
	// loggedFor is how long the same line is not logged again for a client.
	loggedFor = time.Hour
	// maxLogged limits the cache of logged lines. All clients together cannot cause more lines than that in loggedFor.
	maxLogged = logBurst + int(loggedFor/logEvery)

	// clientLogEvery and clientLogBurst limit new lines per client. The metrics count the rest.
	clientLogEvery, clientLogBurst = 3 * time.Minute, 20
	// logEvery and logBurst limit them for all clients together: a client with many addresses must not fill the log
	// either.
	logEvery, logBurst = 3 * time.Second, 500
)

// logLimiter limits the log lines of one kind about clients, so that the log stays short whatever they send. No client
// can suppress another one's lines, and a line that was not logged for lack of budget can be logged later. The zero
// value is ready to use.
type logLimiter struct {
	mutex  sync.Mutex
	budget *budget.Budget
	recent *lru.Cache // time.Time by line
}

// line identifies a log line about a client.
type line struct {
	client netip.Addr
	text   string
}

// allow reports whether a line should be logged for a client, and if so records it.
func (l *logLimiter) allow(now time.Time, client netip.Addr, text string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.budget == nil {
		each := budget.Rate{PerSecond: rate.Every(clientLogEvery), Burst: clientLogBurst}
		l.budget = budget.New(each, budget.Rate{PerSecond: rate.Every(logEvery), Burst: logBurst})
		l.recent = lru.New(maxLogged)
	}
	if at, has := l.recent.Get(line{client, text}); has && now.Sub(at.(time.Time)) < loggedFor {
		return false
	}
	if !l.budget.Spend(now, client) {
		return false
	}
	l.recent.Add(line{client, text}, now)
	return true
}
