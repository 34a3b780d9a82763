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
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

const (
	// idleTimeout is how long counting continues after the last request for the page: a few intervals of any client.
	idleTimeout = 10 * time.Minute
	// maxCursors limits the retained cursors: enough for two clients, each with one lost response.
	maxCursors = 4
	// shutdownTimeout bounds the deletion of the table at shutdown.
	shutdownTimeout = 2 * time.Second
)

// Kernel manages the table that counts, and reads it.
type Kernel interface {
	Commit(ctx context.Context, batch ruleset.Batch) error
	HasDemandTable(ctx context.Context, family model.Family, table string) (bool, error)
	DemandCounts(ctx context.Context, family model.Family, each func(frontend model.Frontend, count uint64)) error
}

// Counter serves the page with the number of new connections per Service, and of open ones. It counts, and reads the
// counts, only on requests for the page.
type Counter struct {
	frontends *Frontends
	kernel    Kernel
	dumps     *conntrack.DumpScheduler
	index     *serviceindex.Index // synced before the frontends
	families  []model.Family
	log       *slog.Logger
	now       func() time.Time

	mutex sync.Mutex // guards the fields below
	// isCounting reports whether the tables exist and their frontends are known. If it is false, tables of an earlier
	// process may exist.
	isCounting       bool
	lastRead         time.Time
	owners           map[model.Frontend]model.ObjectName // the Service of each frontend in the tables
	lastCounts       map[model.Frontend]uint64           // the last count of each element
	totals           map[model.ObjectName]uint64
	skipped          int
	cursors          []cursor // oldest first
	cursorNumber     int
	process          string
	lastUpdateFailed bool
	measured         map[model.ObjectName]bool // the Services whose open connections are counted
	lastDump         dump
	nextDump         time.Time // earliest start of the next one
	lastDumpFailed   bool
}

// cursor is a cursor with the totals at the time when it was issued.
type cursor struct {
	name     string
	issuedAt time.Time
	totals   map[model.ObjectName]uint64
}

// NewCounter returns a Counter that does not count until the first request. The index must receive each sync before the
// frontends do.
func NewCounter(frontends *Frontends, kernel Kernel, dumps *conntrack.DumpScheduler, index *serviceindex.Index,
	families []model.Family, log *slog.Logger, now func() time.Time) *Counter {
	process := make([]byte, 8)
	_, _ = rand.Read(process) // never fails
	return &Counter{
		frontends: frontends, kernel: kernel, dumps: dumps, index: index, families: families, log: log, now: now,
		process: hex.EncodeToString(process),
	}
}

// Run deletes the tables if the page was not read for idleTimeout, and at the start those that an earlier process left.
// When ctx ends it deletes them, too: without a server for the page the counts are useless.
func (c *Counter) Run(ctx context.Context) error {
	c.deleteIfIdle(ctx, 0)
	ticks := time.NewTicker(idleTimeout / 10)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			c.mutex.Lock() // a page may be waiting for a dump: the timeout starts after that
			defer c.mutex.Unlock()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer cancel()
			c.deleteOrWarn(ctx)
			return nil
		case <-ticks.C:
			c.deleteIfIdle(ctx, idleTimeout)
		}
	}
}

// deleteIfIdle deletes the tables unless the page was read within the given time; 0 deletes them always.
func (c *Counter) deleteIfIdle(ctx context.Context, unlessWithin time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if unlessWithin > 0 && (!c.isCounting || c.now().Sub(c.lastRead) < unlessWithin) {
		return
	}
	c.deleteOrWarn(ctx)
}

func (c *Counter) deleteOrWarn(ctx context.Context) {
	if err := c.deleteTables(ctx); err != nil {
		c.log.Warn("failed to delete the tables that count demand", "error", err)
	}
}

func (c *Counter) deleteTables(ctx context.Context) error {
	c.isCounting, c.owners, c.lastCounts, c.totals, c.cursors = false, nil, nil, nil, nil
	c.lastDump.totals = nil // connections may now be opened without being counted
	for _, family := range c.families {
		for _, table := range ruleset.DemandTableNames {
			exists, err := c.kernel.HasDemandTable(ctx, family, table)
			if err != nil {
				return err
			}
			if exists {
				if err := c.kernel.Commit(ctx, ruleset.DeleteDemandTable(family, table)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

var errNotSynced = errors.New("the proxy has not synced yet")

// ServeHTTP writes the page.
func (c *Counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, err := c.page(r.Context(), r.URL.Query().Get(demandapi.CursorParam))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page.Text()) // there is no client left to report an error to
}

// page reads the counts, updates the set of counted frontends, and returns the counts since the cursor, and the open
// connections.
func (c *Counter) page(ctx context.Context, after string) (demandapi.Page, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	ctx = context.WithoutCancel(ctx) // a cancelled request must not leave an update half done
	err := c.update(ctx)
	if err != nil && !errors.Is(err, errNotSynced) && !c.lastUpdateFailed {
		c.log.Warn("failed to count demand; retrying with the next request", "error", err)
	}
	c.lastUpdateFailed = err != nil
	if err != nil {
		return demandapi.Page{}, err
	}
	now := c.now()
	c.lastRead = now
	page := demandapi.Page{Skipped: c.skipped, Counts: map[string]uint64{}}
	for _, issued := range c.cursors {
		if issued.name == after {
			page.Duration = now.Sub(issued.issuedAt)
			for service, total := range c.totals {
				page.Counts[service.String()] = total - min(issued.totals[service], total)
			}
		}
	}
	c.cursorNumber++
	page.Cursor = fmt.Sprintf("%s-%d", c.process, c.cursorNumber)
	c.cursors = append(c.cursors, cursor{page.Cursor, now, maps.Clone(c.totals)})
	if len(c.cursors) > maxCursors {
		c.cursors = c.cursors[1:]
	}
	page.Open = c.open(ctx, now)
	return page, nil
}

// update reads the counts, and then makes the tables count the currently selected frontends.
func (c *Counter) update(ctx context.Context) error {
	selected, isKnown := c.frontends.selection()
	if !isKnown {
		return errNotSynced
	}
	if c.isCounting {
		err := c.read(ctx)
		switch {
		case errors.Is(err, nft.ErrNoTable): // another program deleted it; counts since the last read are lost
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
	if err := c.updateFrontends(ctx, selected.owners); err != nil {
		c.isCounting = false // the contents of the table are unknown
		return err
	}
	c.skipped, c.measured = selected.skipped, selected.measured
	return nil
}

// recreateTables deletes and creates the tables. Totals and cursors remain valid.
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

// read adds the counts since the last read. An element with a lower count than before was recreated.
func (c *Counter) read(ctx context.Context) error {
	for _, family := range c.families {
		err := c.kernel.DemandCounts(ctx, family, func(frontend model.Frontend, count uint64) {
			previous := c.lastCounts[frontend]
			if count < previous {
				previous = 0
			}
			c.lastCounts[frontend] = count
			if owner, exists := c.owners[frontend]; exists {
				c.totals[owner] += count - previous
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// updateFrontends makes the tables count the selected frontends.
func (c *Counter) updateFrontends(ctx context.Context, selected map[model.Frontend]model.ObjectName) error {
	for _, family := range c.families {
		batch := ruleset.UpdateDemandTable(family, frontendsOf(c.owners, family), frontendsOf(selected, family))
		if err := c.kernel.Commit(ctx, batch); err != nil {
			return err
		}
	}
	c.owners = selected
	maps.DeleteFunc(c.lastCounts, func(frontend model.Frontend, _ uint64) bool { _, isSelected := selected[frontend]; return !isSelected })
	counted := map[model.ObjectName]bool{}
	for _, service := range selected {
		counted[service] = true
	}
	maps.DeleteFunc(c.totals, func(service model.ObjectName, _ uint64) bool { return !counted[service] })
	for service := range counted {
		c.totals[service] += 0 // adds an entry if there is none
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
