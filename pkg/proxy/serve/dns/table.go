package dns

import (
	"sync"
	"sync/atomic"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Table holds the records of Services. It is a handler of the proxy's decisions, and safe for concurrent use.
type Table struct {
	// Zone is the zone of all names.
	Zone Zone

	services sync.Map // model.ObjectName to *Records
	count    atomic.Int64
	isSynced atomic.Bool
}

// Derive returns the records of a Service; nil if there are none.
func (t *Table) Derive(decisions []selection.Decision) any {
	if records := NewRecords(decisions, t.Zone); records != nil {
		return records
	}
	return nil
}

// OnApplied replaces the records of a Service.
func (t *Table) OnApplied(service model.ObjectName, digest any) {
	records, _ := digest.(*Records)
	if records == nil {
		if _, had := t.services.LoadAndDelete(service); had {
			t.count.Add(-1)
		}
		return
	}
	if _, had := t.services.Swap(service, records); !had {
		t.count.Add(1)
	}
}

// OnSynced enables Lookup, because the table is complete.
func (t *Table) OnSynced(selection.SyncState) { t.isSynced.Store(true) }

// Len returns the number of Services with records.
func (t *Table) Len() int { return int(t.count.Load()) }

// Lookup returns the records of a Service; nil if there are none, or before the first sync.
func (t *Table) Lookup(service model.ObjectName) *Records {
	if !t.isSynced.Load() {
		return nil
	}
	records, _ := t.services.Load(service)
	found, _ := records.(*Records)
	return found
}
