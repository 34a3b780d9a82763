//go:build linux

package demandcounter

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/accounting"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

const (
	// dumpInterval is the shortest time between two dumps, less than the interval of any client. Readers in between share
	// the last result.
	dumpInterval = 20 * time.Second
	// dumpCooldownFactor is the time between two dumps as a multiple of the duration of the first: they use at most 2 % of
	// a core, unless one takes longer than 2.4 s.
	dumpCooldownFactor = 49
	// dumpStartTimeout is how long a page waits until a dump starts. Clients wait for a page for five seconds.
	dumpStartTimeout = 3 * time.Second
	// maxDumpAge is the age up to which a page reports the last result: two intervals of a client in a large cluster.
	maxDumpAge = 2 * time.Minute
)

// dump is a dump of conntrack.
type dump struct {
	at   time.Time
	open map[model.ObjectName]uint64 // open connections by measured Service; only those that have some
	// totals are the new connections to each measured Service that had been counted by then. They are nil, unlike any
	// later ones, if connections may have been opened without being counted since.
	totals map[model.ObjectName]uint64
}

// open returns the number of open connections to each measured Service, or nil if it is unknown. It dumps conntrack,
// unless the last dump is recent, or found none and no connection was opened since.
func (c *Counter) open(ctx context.Context, now time.Time) map[string]uint64 {
	totals := map[model.ObjectName]uint64{}
	for service := range c.measured {
		totals[service] = c.totals[service]
	}
	mayBeOpen := len(c.lastDump.open) > 0 || !maps.Equal(totals, c.lastDump.totals)
	if len(totals) > 0 && mayBeOpen && !now.Before(c.nextDump) {
		c.dumpOpen(ctx, now, totals)
	}
	isCurrent := now.Sub(c.lastDump.at) <= maxDumpAge || !mayBeOpen
	if c.lastDump.open == nil || !isCurrent {
		return nil
	}
	counts := map[string]uint64{}
	for service, count := range c.lastDump.open {
		if c.measured[service] {
			counts[service.String()] = count
		}
	}
	return counts
}

// dumpOpen counts the open connections. If the dump fails, none are known. If it does not start in time, the last
// result stays. If it takes so long that the reader gives up, the next one gets its result.
func (c *Counter) dumpOpen(ctx context.Context, now time.Time, totals map[model.ObjectName]uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := time.AfterFunc(dumpStartTimeout, cancel)
	open := map[model.ObjectName]uint64{}
	const replied = conntrack.DestinationNAT | conntrack.SeenReply
	results, err := c.dumps.Query(ctx, func() []conntrack.Query {
		timeout.Stop()
		snapshot := c.index.Snapshot()
		return []conntrack.Query{{Filter: conntrack.Filter{Status: replied, Mask: replied}, Each: func(e *conntrack.Entry) bool {
			if service, isOpen := openTo(e, snapshot); isOpen && c.measured[service] {
				open[service]++
			}
			return true
		}}}
	})
	c.nextDump = now.Add(dumpInterval)
	if err != nil {
		c.warnOnce(fmt.Errorf("other dumps of conntrack take more than %s", dumpStartTimeout))
		return
	}
	c.nextDump = now.Add(min(max(dumpInterval, dumpCooldownFactor*results[0].Took), maxDumpAge))
	if c.warnOnce(results[0].Err); results[0].Err != nil {
		c.lastDump = dump{}
		return
	}
	c.lastDump = dump{now, open, totals}
}

// warnOnce logs an error, unless the last dump had one, too.
func (c *Counter) warnOnce(err error) {
	if err != nil && !c.lastDumpFailed {
		c.log.Warn("failed to count open connections; retrying with a later request", "error", err)
	}
	c.lastDumpFailed = err != nil
}

// openTo returns the Service of a replied connection. It reports false if the connection is closed, or if our tables
// did not translate it to an endpoint that the Service still has.
func openTo(e *conntrack.Entry, snapshot *serviceindex.Snapshot) (service model.ObjectName, isOpen bool) {
	if !serviceindex.IsOwnNAT(e) || accounting.IsClosed(e) {
		return model.ObjectName{}, false
	}
	frontend := snapshot.Lookup(e.Protocol, e.OrigDst())
	if frontend == nil {
		return model.ObjectName{}, false
	}
	return frontend.Service, frontend.HasEndpoint(e.ReplySrc())
}
