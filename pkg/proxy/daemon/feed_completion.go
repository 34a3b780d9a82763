package daemon

import (
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// origin is a source of changes. These constants alone say how many there are.
type origin int

const (
	fromObjects origin = iota
	fromInterfaces
	origins // their number
)

// completion makes the first change the complete state, as the proxy needs it: if a part were missing, the first sync
// would remove what an earlier proxy rightly left in the kernel, such as Services, or the addresses that serve node
// ports.
type completion struct {
	sync.Mutex
	reported []bool       // by origin
	waiting  model.Change // what came before all had reported
	begun    bool         // the first change has been handed over
}

// newCompletion waits for a number of origins.
func newCompletion(origins origin) *completion {
	return &completion{reported: make([]bool, origins)}
}

// add returns the change to hand over now, and whether there is one. The first is handed over even if it is empty:
// there may be no objects.
func (c *completion) add(from origin, change model.Change) (model.Change, bool) {
	if c.begun {
		return change, !change.IsEmpty()
	}
	c.reported[from] = true
	c.waiting = c.waiting.Then(change)
	if slices.Contains(c.reported, false) {
		return model.Change{}, false
	}
	change, c.waiting, c.begun = c.waiting, model.Change{}, true
	return change, true
}
