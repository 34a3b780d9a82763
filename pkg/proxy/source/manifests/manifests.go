package manifests

import (
	"context"
	"log/slog"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Manifests is a folder of manifests as a source of the cluster's state. It is for one goroutine, except for Refusals.
type Manifests struct {
	dir    string
	log    *slog.Logger
	folder Folder

	// missingSlices is which EndpointSlices were missing at the last load.
	missingSlices string

	// loaded is the folder as it was loaded last, for Refusals.
	mutex  sync.Mutex
	loaded Folder
}

// NewManifests returns the folder at dir as a source of what a view sees. It reads nothing yet.
func NewManifests(dir string, view convert.View, log *slog.Logger) *Manifests {
	return &Manifests{dir: dir, log: log, folder: Folder{View: view}}
}

// Load reads what changed in the folder since the last load; the first time, everything.
func (m *Manifests) Load() (convert.Update, error) {
	return m.folder.Load(m.dir)
}

// Run loads the folder, delivers all of it as the first update, and then delivers what changes until the context ends.
// It returns nil then, and an error only if the folder cannot be read at the start.
//
// deliver is called by one goroutine, and may take its time: what changes meanwhile comes as one update after it.
func (m *Manifests) Run(ctx context.Context, deliver func(convert.Update)) error {
	watch := newWatch(m.dir, m.log)
	defer watch.close()
	return m.run(ctx, watch, deliver)
}

// loadAtOnce is Load, of one place. If a link is turned while files are read, an object that moves from one file to
// another may be in neither, and seem to be gone: then all is read anew. While links are turned all the time, what was
// loaded stays in force.
//
// It first watches and then reads, so that no change falls between the two.
func (m *Manifests) loadAtOnce(watch *watch) (convert.Update, error) {
	for attempt := 1; ; attempt++ {
		watch.follow()
		loaded := m.folder // Load changes this copy, but nothing that it refers to
		update, err := loaded.Load(m.dir)
		isLast := attempt == followAttempts
		if !watch.hasLinkChanged() || isLast && !m.folder.isLoaded {
			m.folder = loaded
			return update, err
		}
		if isLast {
			return convert.Update{}, nil
		}
	}
}

// run is Run with a given watch.
func (m *Manifests) run(ctx context.Context, watch *watch, deliver func(convert.Update)) error {
	m.folder.isFollowed = true
	for first := true; ; first = false {
		update, err := m.loadAtOnce(watch)
		if err != nil {
			return err
		}
		m.mutex.Lock()
		m.loaded = m.folder // a load changes nothing that this copy refers to
		m.mutex.Unlock()
		m.warn()
		if first || !update.IsEmpty() {
			deliver(update)
		}
		watch.again = m.folder.isWaiting()
		watch.until, _ = m.folder.next()
		if !watch.wait(ctx) {
			return nil
		}
	}
}

// warn logs, once, that there are no EndpointSlices for the Services, or some of an old version.
func (m *Manifests) warn() {
	lack, _ := m.folder.Inventory().MissingSlices(m.dir)
	if lack != "" && m.missingSlices == "" {
		m.log.Warn("EndpointSlices are missing", "reason", lack)
	}
	m.missingSlices = lack
}

// Rejections returns the objects that were refused when the folder was loaded last, with the versions in force.
func (m *Manifests) Rejections() []convert.Rejection {
	m.mutex.Lock()
	loaded := m.loaded
	m.mutex.Unlock()
	return loaded.Rejections()
}
