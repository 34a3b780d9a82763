package folder

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Refusals returns, sorted, the objects with problems, and the objects in force that have no good version in the folder
// now, as in an unreadable file: each with the version in force.
func (f *Folder) Refusals() []convert.Refusal {
	var refusals []convert.Refusal
	for _, problem := range f.problems {
		if !problem.IsRefusal() {
			continue
		}
		refusal := convert.Refusal{File: problem.File, Kind: problem.Kind, Name: problem.Name}
		if key, isObject := keyNamed(problem.Kind, problem.Name); isObject {
			if current, isInForce := f.inForce[key]; isInForce {
				refusal.File, refusal.InForce = current.file, current.value
			}
		}
		refusals = append(refusals, refusal)
	}
	if len(f.problems) > 0 { // else nothing is lost
		written := f.written()
		for key, current := range f.inForce {
			if current.value != nil && !written[placed{current.file, key}] {
				refusals = append(refusals, convert.Refusal{File: current.file, Kind: key.Kind.Name, Name: key.Name, InForce: current.value})
			}
		}
	}
	return convert.SortRefusals(refusals)
}

// placed is an object in a file.
type placed struct {
	file string
	key  convert.ObjectKey
}

// written returns the objects that have a good version in a readable file.
func (f *Folder) written() map[placed]bool {
	written := map[placed]bool{}
	for name, file := range f.files {
		if file.failure != nil {
			continue
		}
		for i := range file.contents.claims {
			if claim := &file.contents.claims[i]; claim.isGood() {
				written[placed{name, claim.key}] = true
			}
		}
	}
	return written
}

// lastGood are the versions that a running proxy has in force for refused objects.
func (f *Folder) lastGood() map[convert.ObjectKey]entry {
	inForce := map[convert.ObjectKey]entry{}
	for _, refusal := range f.LastGood {
		if key, isObject := keyNamed(refusal.Kind, refusal.Name); isObject && refusal.InForce != nil {
			inForce[key] = entry{refusal.File, refusal.InForce}
		}
	}
	return inForce
}

// keyNamed returns the key of an object, and whether the folder may have one of that kind.
func keyNamed(kind string, name model.ObjectName) (convert.ObjectKey, bool) {
	for _, known := range kindOf {
		if known.Name == kind && name != (model.ObjectName{}) {
			return convert.ObjectKey{Kind: known, Name: name}, true
		}
	}
	return convert.ObjectKey{}, false
}
