package folder

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// lookInterval is how often the folder is looked at. inotify would tell sooner, but nothing about the path to the folder, or
// about those to which links lead: any of these may be replaced, and so all of them would be looked at as often anyway.
const lookInterval = time.Second

// mostLooking bounds the part of the time that looks take: 1 of mostLooking.
const mostLooking = 20

// Manifests is a folder of manifests as a source of the cluster's state. It is for one goroutine, except for Refusals.
type Manifests struct {
	dir string
	log *slog.Logger

	mutex  sync.Mutex // guards the folder
	folder Folder

	// lack is which EndpointSlices were missing at the last load.
	lack string
}

// NewManifests returns the folder at dir as a source of what a view sees. It reads nothing yet.
func NewManifests(dir string, view convert.View, log *slog.Logger) *Manifests {
	return &Manifests{dir: dir, log: log, folder: Folder{View: view}}
}

// Load reads what changed in the folder since the last load; the first time, everything.
func (m *Manifests) Load() (convert.Update, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.folder.Load(m.dir)
}

// Run loads the folder, delivers all of it as the first update, and then delivers what changes until the context ends.
// It returns nil then, and an error only if the folder cannot be read at the start.
//
// deliver is called by one goroutine, and may take its time: what changes meanwhile comes as one update after it.
func (m *Manifests) Run(ctx context.Context, deliver func(convert.Update)) error {
	m.folder.settle = settleTime
	for first := true; ; first = false {
		began := time.Now()
		update, err := m.Load()
		if err != nil {
			return err
		}
		took := time.Since(began)
		m.warn()
		if first || !update.IsEmpty() {
			deliver(update)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(lookInterval, (mostLooking-1)*took)):
		}
	}
}

// warn logs, once, that there are no EndpointSlices for the Services, or some of an old version.
func (m *Manifests) warn() {
	lack, _ := m.folder.Inventory().LackOfSlices(m.dir)
	if lack != "" && m.lack == "" {
		m.log.Warn("EndpointSlices are missing", "reason", lack)
	}
	m.lack = lack
}

// Refusals returns the objects that were refused when the folder was loaded last, with the versions in force.
func (m *Manifests) Refusals() []convert.Refusal {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.folder.Refusals()
}
