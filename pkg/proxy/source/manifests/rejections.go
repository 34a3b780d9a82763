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
		if key, isObject := keyNamed(problem.Kind, problem.Name); isObject {
			if current, isInForce := f.applied[key]; isInForce {
				rejection.File, rejection.Applied = current.file, current.value
			}
		}
		rejections = append(rejections, rejection)
	}
	if len(f.problems) > 0 { // otherwise nothing is lost
		written := f.written()
		for key, current := range f.applied {
			if current.value != nil && !written[locatedObject{current.file, key}] {
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

// written returns the objects that have a valid version in a readable file.
func (f *Folder) written() map[locatedObject]bool {
	written := map[locatedObject]bool{}
	for name, file := range f.files {
		if file.failure != nil {
			continue
		}
		for i := range file.contents.claims {
			if claim := &file.contents.claims[i]; claim.isValid() {
				written[locatedObject{name, claim.key}] = true
			}
		}
	}
	return written
}

// lastKnownGoodOf returns the versions that a running proxy uses for invalid objects.
func (f *Folder) lastKnownGoodOf() map[convert.ObjectKey]entry {
	inForce := map[convert.ObjectKey]entry{}
	for _, rejection := range f.LastKnownGood {
		if key, isObject := keyNamed(rejection.Kind, rejection.Name); isObject && rejection.Applied != nil {
			inForce[key] = entry{rejection.File, rejection.Applied}
		}
	}
	return inForce
}

// keyNamed returns the key of an object, and whether the folder may have objects of its kind.
func keyNamed(kind string, name model.ObjectName) (convert.ObjectKey, bool) {
	for _, known := range kindOf {
		if known.Name == kind && name != (model.ObjectName{}) {
			return convert.ObjectKey{Kind: known, Name: name}, true
		}
	}
	return convert.ObjectKey{}, false
}
