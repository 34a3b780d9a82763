package manifests

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// objectVersion is one object of a file. Either it is good, or its problems say what is wrong with it.
type objectVersion struct {
	key      convert.ObjectKey
	value    any // nil if the object is not ours to serve, such as a headless Service
	problems []model.Finding
	// ignored are the labels, annotations and unknown fields of a valid object that count as absent.
	ignored []model.Finding
}

func (c *objectVersion) isValid() bool { return len(c.problems) == 0 }

// contents is what one file holds.
type contents struct {
	claims []objectVersion
	// inventory counts all objects, including refused ones and those of other kinds.
	inventory convert.Inventory
	// problems are those of whole documents.
	problems []model.Finding
	// isComplete: every document and object was recognized, so the claims are all that is in the file.
	isComplete bool
}
