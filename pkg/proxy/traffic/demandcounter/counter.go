//go:build linux

package demandcounter

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

const (
	// idleTimeout is how long counting goes on after somebody read the page: a few intervals of any reader.
	idleTimeout = 10 * time.Minute
	// maxCursors is how many cursors are known: enough for two readers, each with one lost answer.
	maxCursors = 4
	// shutdownTimeout bounds the deletion of the table at the end.
	shutdownTimeout = 2 * time.Second
)

// Kernel does the counting.
type Kernel interface {
	Commit(ctx context.Context, batch ruleset.Batch) error
	HasDemandTable(ctx context.Context, family model.Family, table string) (bool, error)
	DemandCounts(ctx context.Context, family model.Family, each func(frontend model.Frontend, count uint64)) error
}

// Counter answers how many connections were asked for. Only a request for the page makes it count, and read the counts.
type Counter struct {
	reader   *Frontends
	kernel   Kernel
	families []model.Family
	log      *slog.Logger
	now      func() time.Time

	mutex sync.Mutex // guards what follows
	// isCounting: the table is there. Before that, there may be tables that an earlier process left.
	isCounting    bool
	lastRead      time.Time
	owners        map[model.Frontend]model.ObjectName // of the frontends in the table
	lastCounts    map[model.Frontend]uint64           // what each element had counted
	totals        map[model.ObjectName]uint64
	skipped       int
	cursors       []cursor // the oldest one first
	number        int
	process       string
	loggedFailure bool
}

// cursor is a cursor, with the counts at the time when it was handed out.
type cursor struct {
	name   string
	at     time.Time
	totals map[model.ObjectName]uint64
}

// NewCounter returns a counter that counts nothing until it is asked.
func NewCounter(reader *Frontends, kernel Kernel, families []model.Family, log *slog.Logger, now func() time.Time) *Counter {
	process := make([]byte, 8)
	_, _ = rand.Read(process) // which never fails
	return &Counter{reader: reader, kernel: kernel, families: families, log: log, now: now, process: hex.EncodeToString(process)}
}

// Run deletes the table when nobody has read the page for a long time, and also a table that an earlier process left.
// When ctx ends it deletes the table, too: without a reader its counts are useless.
func (c *Counter) Run(ctx context.Context) error {
	c.deleteIfIdle(ctx, 0)
	ticks := time.NewTicker(idleTimeout / 10)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer cancel()
			c.deleteIfIdle(ctx, 0)
			return nil
		case <-ticks.C:
			c.deleteIfIdle(ctx, idleTimeout)
		}
	}
}

// deleteIfIdle deletes the table unless the page was read within that time.
func (c *Counter) deleteIfIdle(ctx context.Context, unlessWithin time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if unlessWithin > 0 && (!c.isCounting || c.now().Sub(c.lastRead) < unlessWithin) {
		return
	}
	if err := c.deleteTables(ctx); err != nil {
		c.log.Warn("the tables that count what is asked could not be deleted", "error", err)
	}
}

func (c *Counter) deleteTables(ctx context.Context) error {
	c.isCounting, c.owners, c.lastCounts, c.totals, c.cursors = false, nil, nil, nil, nil
	for _, family := range c.families {
		for _, table := range ruleset.AskedTableNames {
			has, err := c.kernel.HasDemandTable(ctx, family, table)
			if err != nil {
				return err
			}
			if has {
				if err := c.kernel.Commit(ctx, ruleset.DeleteDemandTable(family, table)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

var errNotSynced = errors.New("the proxy has not synced yet")

// ServeHTTP answers with the page.
func (c *Counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, err := c.page(r.Context(), r.URL.Query().Get(demandapi.After))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page.Text()) // a client that has gone reads no error
}

// page reads the counts, makes the table count what should be counted from now on, and returns what is new.
func (c *Counter) page(ctx context.Context, after string) (demandapi.Page, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	// A request that is cancelled must not leave half of a change.
	err := c.update(context.WithoutCancel(ctx))
	if err != nil && !errors.Is(err, errNotSynced) && !c.loggedFailure {
		c.log.Warn("what clients ask of Services is not counted; trying again with the next request", "error", err)
	}
	c.loggedFailure = err != nil
	if err != nil {
		return demandapi.Page{}, err
	}
	now := c.now()
	c.lastRead = now
	page := demandapi.Page{Skipped: c.skipped, Counts: map[string]uint64{}}
	for _, known := range c.cursors {
		if known.name == after {
			page.Took = now.Sub(known.at)
			for service, total := range c.totals {
				page.Counts[service.String()] = total - min(known.totals[service], total)
			}
		}
	}
	c.number++
	page.Cursor = fmt.Sprintf("%s-%d", c.process, c.number)
	c.cursors = append(c.cursors, cursor{page.Cursor, now, maps.Clone(c.totals)})
	if len(c.cursors) > maxCursors {
		c.cursors = c.cursors[1:]
	}
	return page, nil
}

// update reads what the table has counted, and then makes it count what is wanted now.
func (c *Counter) update(ctx context.Context) error {
	wanted, skipped, isKnown := c.reader.selection()
	if !isKnown {
		return errNotSynced
	}
	if c.isCounting {
		err := c.read(ctx)
		switch {
		case errors.Is(err, nft.ErrNoTable): // somebody deleted it, with what it counted since the last reading
			c.isCounting = false
		case err != nil:
			return err
		}
	}
	if !c.isCounting {
		if err := c.recreateTables(ctx); err != nil {
			return err
		}
	}
	if err := c.updateFrontends(ctx, wanted); err != nil {
		c.isCounting = false // what the table holds is unknown
		return err
	}
	c.skipped = skipped
	return nil
}

// recreateTables makes the tables anew. Cursors stay: what was counted before is known.
func (c *Counter) recreateTables(ctx context.Context) error {
	totals, cursors := c.totals, c.cursors
	if err := c.deleteTables(ctx); err != nil {
		return err
	}
	for _, family := range c.families {
		if err := c.kernel.Commit(ctx, ruleset.AddDemandTable(family)); err != nil {
			return err
		}
	}
	c.isCounting, c.lastCounts = true, map[model.Frontend]uint64{}
	c.totals, c.cursors = totals, cursors
	if c.totals == nil {
		c.totals = map[model.ObjectName]uint64{}
	}
	return nil
}

// read adds what was counted since the last reading. An element that counted less than before was made anew.
func (c *Counter) read(ctx context.Context) error {
	for _, family := range c.families {
		err := c.kernel.DemandCounts(ctx, family, func(frontend model.Frontend, count uint64) {
			before := c.lastCounts[frontend]
			if count < before {
				before = 0
			}
			c.lastCounts[frontend] = count
			if owner, has := c.owners[frontend]; has {
				c.totals[owner] += count - before
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// updateFrontends has the tables count other frontends.
func (c *Counter) updateFrontends(ctx context.Context, wanted map[model.Frontend]model.ObjectName) error {
	for _, family := range c.families {
		batch := ruleset.UpdateDemandTable(family, frontendsOf(c.owners, family), frontendsOf(wanted, family))
		if err := c.kernel.Commit(ctx, batch); err != nil {
			return err
		}
	}
	c.owners = wanted
	maps.DeleteFunc(c.lastCounts, func(frontend model.Frontend, _ uint64) bool { _, has := wanted[frontend]; return !has })
	isThere := map[model.ObjectName]bool{}
	for _, service := range wanted {
		isThere[service] = true
	}
	maps.DeleteFunc(c.totals, func(service model.ObjectName, _ uint64) bool { return !isThere[service] })
	for service := range isThere {
		c.totals[service] += 0 // the Service has an entry, with whatever was counted
	}
	return nil
}

func frontendsOf(owners map[model.Frontend]model.ObjectName, family model.Family) map[model.Frontend]bool {
	frontends := map[model.Frontend]bool{}
	for frontend := range owners {
		if model.FamilyOf(frontend.Addr) == family {
			frontends[frontend] = true
		}
	}
	return frontends
}
