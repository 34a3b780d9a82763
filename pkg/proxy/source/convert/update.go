package convert

import "github.com/vicinity-proxy/vicinity/pkg/model"

// Update is what one load of a source made different, and everything that is wrong with the source now.
type Update struct {
	Change model.Change
	// Problems is the complete current list, sorted.
	Problems []Problem
}
