package manifests

import (
	"context"
	"log/slog"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Manifests is a folder of manifests as a source of the cluster's state. It is not safe for concurrent use, except for
// Rejections.
type Manifests struct {
	dir    string
	log    *slog.Logger
	folder Folder

	// missingSlices describes the EndpointSlices that were missing at the last load.
	missingSlices string

	// loaded is the folder as of the last load, for Rejections.
	mutex  sync.Mutex
	loaded Folder
}

// NewManifests returns the folder at dir as a source of the objects in a view. It reads nothing yet.
func NewManifests(dir string, view convert.View, log *slog.Logger) *Manifests {
	return &Manifests{dir: dir, log: log, folder: Folder{View: view}}
}

// Load reads the files that changed since the last load; the first time, all of them.
func (m *Manifests) Load() (convert.Update, error) {
	return m.folder.Load(m.dir)
}

// Run loads the folder, delivers everything as the first update, and then delivers the changes until the context ends.
// Then it returns nil. It returns an error only if the folder cannot be read at the start.
//
// deliver is called by one goroutine and may block: changes during a call are delivered as one update after it.
func (m *Manifests) Run(ctx context.Context, deliver func(convert.Update)) error {
	watch := newWatch(m.dir, m.log)
	defer watch.close()
	return m.run(ctx, watch, deliver)
}

// loadConsistently loads a consistent state of the folder. If a link is changed while files are read, an object that
// moves from one file to another may be in neither, and seem to be deleted. Then everything is read again. While links
// keep changing, the loaded state stays active.
//
// It first watches and then reads, so that it misses no change between the two.
func (m *Manifests) loadConsistently(watch *watch) (convert.Update, error) {
	for attempt := 1; ; attempt++ {
		watch.watchTree()
		loaded := m.folder // Load changes this copy, but nothing that it references
		update, err := loaded.Load(m.dir)
		isLast := attempt == maxAttempts
		if !watch.hasLinkChanged() || isLast && !m.folder.isLoaded {
			m.folder = loaded
			return update, err
		}
		if isLast {
			return convert.Update{}, nil
		}
	}
}

// run implements Run with a given watch.
func (m *Manifests) run(ctx context.Context, watch *watch, deliver func(convert.Update)) error {
	m.folder.isWatched = true
	for first := true; ; first = false {
		update, err := m.loadConsistently(watch)
		if err != nil {
			return err
		}
		m.mutex.Lock()
		m.loaded = m.folder // a load changes nothing that this copy references
		m.mutex.Unlock()
		m.logMissingSlices()
		if first || !update.IsEmpty() {
			deliver(update)
		}
		watch.recheck = m.folder.isWaiting()
		watch.deadline, _ = m.folder.next()
		if !watch.wait(ctx) {
			return nil
		}
	}
}

// logMissingSlices logs once that there are no EndpointSlices for the Services, or that some are of an old version.
func (m *Manifests) logMissingSlices() {
	missing, _ := m.folder.Inventory().MissingSlices(m.dir)
	if missing != "" && m.missingSlices == "" {
		m.log.Warn("EndpointSlices are missing", "reason", missing)
	}
	m.missingSlices = missing
}

// Rejections returns the objects that were invalid at the last load, with the active versions.
func (m *Manifests) Rejections() []convert.Rejection {
	m.mutex.Lock()
	loaded := m.loaded
	m.mutex.Unlock()
	return loaded.Rejections()
}
