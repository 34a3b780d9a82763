package manifests

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Rejections returns, sorted, the objects with problems, and the active objects that have no valid version in the
// folder now, such as those of an unreadable file: each with its active version.
func (f *Folder) Rejections() []convert.Rejection {
	var rejections []convert.Rejection
	for _, problem := range f.problems {
		if !problem.IsRejection() {
			continue
		}
		rejection := convert.Rejection{File: problem.File, Kind: problem.Kind, Name: problem.Name}
		if key, isObject := findKey(problem.Kind, problem.Name); isObject {
			if current, isApplied := f.applied[key]; isApplied {
				rejection.File, rejection.Applied = current.file, current.value
			}
		}
		rejections = append(rejections, rejection)
	}
	if len(f.problems) > 0 { // otherwise every active object has a valid version
		valid := f.validObjects()
		for key, current := range f.applied {
			if current.value != nil && !valid[locatedObject{current.file, key}] {
				rejections = append(rejections, convert.Rejection{File: current.file, Kind: key.Kind.Name, Name: key.Name, Applied: current.value})
			}
		}
	}
	return convert.SortRejections(rejections)
}

// locatedObject identifies an object in a file.
type locatedObject struct {
	file string
	key  convert.ObjectKey
}

// validObjects returns the objects that have a valid version in a readable file.
func (f *Folder) validObjects() map[locatedObject]bool {
	valid := map[locatedObject]bool{}
	for name, file := range f.files {
		if file.failure != nil {
			continue
		}
		for i := range file.contents.objects {
			if version := &file.contents.objects[i]; version.isValid() {
				valid[locatedObject{name, version.key}] = true
			}
		}
	}
	return valid
}

// lastKnownGoodEntries returns the versions that a running proxy uses for invalid objects.
func (f *Folder) lastKnownGoodEntries() map[convert.ObjectKey]entry {
	entries := map[convert.ObjectKey]entry{}
	for _, rejection := range f.LastKnownGood {
		if key, isObject := findKey(rejection.Kind, rejection.Name); isObject && rejection.Applied != nil {
			entries[key] = entry{rejection.File, rejection.Applied}
		}
	}
	return entries
}

// findKey returns the key of an object, and whether the folder may have objects of its kind.
func findKey(kind string, name model.ObjectName) (convert.ObjectKey, bool) {
	for _, known := range kindOf {
		if known.Name == kind && name != (model.ObjectName{}) {
			return convert.ObjectKey{Kind: known, Name: name}, true
		}
	}
	return convert.ObjectKey{}, false
}
