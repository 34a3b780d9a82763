package manifests

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// Folder is a folder of manifests as of its last load. The zero value has loaded nothing yet.
type Folder struct {
	// View selects the objects that concern the proxy. It is set before the first load.
	View convert.View
	// LastKnownGood are the versions that a running proxy uses for invalid objects. They are active here before the first
	// load.
	LastKnownGood []convert.Rejection
	// isWatched is set if the folder is loaded repeatedly. Then a file version that removes objects becomes active only
	// after a delay.
	isWatched bool

	isLoaded bool
	files    map[string]*file // by path relative to the folder
	applied  map[convert.ObjectKey]entry
	problems []model.Finding
	// nodes is the state of the nodes in the folder, and demand is whether measured demand counts.
	nodes  *nodes.Store
	demand model.DemandState
}

// Load reads the changes in the folder since the last load, and returns the resulting update. The first load returns
// everything.
//
// It fails if the first load cannot read the folder. Later that is a finding like any other: the loaded state stays
// active until the folder is back, since a folder that vanishes as a whole was more likely unmounted than emptied.
func (f *Folder) Load(dir string) (convert.Update, error) { return f.loadAt(dir, time.Now()) }

func (f *Folder) loadAt(dir string, now time.Time) (convert.Update, error) {
	found, err := manifest.Scan(dir)
	if err != nil {
		if !f.isLoaded {
			return convert.Update{}, err
		}
		_, problems := resolve(f.applied, f.files)
		return f.update(model.Change{}, append(problems, unreadableProblem(".", err))), nil
	}
	return f.applyFiles(f.read(found, now), found.Unreadable, now), nil
}

// Stream is a stream of manifests that can be read only once, such as standard input.
type Stream struct {
	Name string // in messages
	Text []byte
}

// LoadStream loads a stream instead of a folder.
func (f *Folder) LoadStream(stream *Stream) convert.Update {
	read := version{contents: decode(stream.Name, stream.Text, f.View)}
	return f.applyFiles(map[string]*file{stream.Name: {version: read}}, nil, time.Now())
}

// applyFiles makes files the state of the folder, and returns the resulting update. unreadable are files that cannot be
// accessed.
func (f *Folder) applyFiles(files map[string]*file, unreadable map[string]error, now time.Time) convert.Update {
	before := f.applied
	if !f.isLoaded {
		before = f.lastKnownGoodEntries()
		f.nodes = nodes.NewStore(f.View.Node)
		f.nodes.AllLabels = true
	}
	applied, problems := resolve(before, files)
	for name, failure := range unreadable {
		if files[name] == nil {
			problems = append(problems, unreadableProblem(name, failure))
		}
	}
	previous := f.applied
	f.files, f.applied = files, applied
	change := f.changeSince(previous, now)
	if !f.isLoaded {
		change.AllNodes = new(true) // the folder contains all nodes
	}
	if demand := demandIn(applied); demand != f.demand {
		f.demand, change.DemandState = demand, &demand
	}
	f.isLoaded = true
	return f.update(change, problems)
}

// demandIn returns whether measured demand counts. A folder needs no Lease: its ServiceDemands are current.
func demandIn(applied map[convert.ObjectKey]entry) model.DemandState {
	for key, current := range applied {
		if key.Kind == convert.ServiceDemands && current.value != nil {
			return model.DemandActive
		}
	}
	return model.DemandUnavailable
}

// Inventory counts the objects in the readable files, including invalid objects and other kinds.
func (f *Folder) Inventory() convert.Inventory {
	all := convert.Inventory{}
	for _, file := range f.files {
		for typ, count := range file.contents.inventory {
			all[typ] += count
		}
	}
	return all
}

// update returns the update for a change and the current problems.
func (f *Folder) update(change model.Change, problems []model.Finding) convert.Update {
	before := f.problems
	f.problems = convert.SortProblems(problems)
	return convert.NewUpdate(change, before, f.problems)
}

// read returns the current states of the files in the folder. Files that cannot be accessed keep their state.
func (f *Folder) read(found manifest.Tree, now time.Time) map[string]*file {
	files := make(map[string]*file, len(found.Files))
	for _, name := range found.Files {
		old := f.files[name]
		if old == nil {
			old = &file{}
		}
		current := old.read(found.Dir, name, f.View, f.isWatched, now)
		if errors.Is(current.failure, fs.ErrNotExist) {
			continue // deleted a moment ago
		}
		files[name] = current
	}
	for name, old := range f.files {
		if failure := found.ErrorOf(name); failure != nil && files[name] == nil {
			updated := *old
			updated.failure, updated.isSettled = failure, false
			files[name] = &updated
		}
	}
	return files
}

// next returns the next deadline at which the state changes without a file change, and whether there is one.
func (f *Folder) next() (at time.Time, ok bool) {
	if f.nodes == nil {
		return time.Time{}, false
	}
	return f.nodes.Next()
}

// isWaiting reports whether a file has a version that is not active yet and has to be checked again.
func (f *Folder) isWaiting() bool {
	for _, file := range f.files {
		if file.candidate != nil {
			return true
		}
	}
	return false
}

// unreadableProblem returns the finding for an unreadable file or folder, without its path on this machine.
func unreadableProblem(name string, err error) model.Finding {
	reason := err.Error()
	if atPath, ok := errors.AsType[*fs.PathError](err); ok {
		reason = atPath.Err.Error()
	}
	return model.Finding{File: name, Code: model.Invalid, Reason: "cannot be read: " + strings.TrimSpace(reason)}.Sanitized()
}
