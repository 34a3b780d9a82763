package manifests

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// objectVersion is the version of an object in one file. It is valid if it has no problems.
type objectVersion struct {
	key      convert.ObjectKey
	value    any // nil if the object is not ours to serve, such as a headless Service
	problems []model.Finding
	// ignored are findings for the labels, annotations and unknown fields of a valid object that count as absent.
	ignored []model.Finding
}

func (v *objectVersion) isValid() bool { return len(v.problems) == 0 }

// contents are the parsed contents of one file.
type contents struct {
	objects []objectVersion
	// inventory counts all objects, including invalid ones and those of other kinds.
	inventory convert.Inventory
	// problems are the problems of whole documents.
	problems []model.Finding
	// isComplete reports whether every document and object was recognized, so that objects has all objects of the file.
	isComplete bool
}
