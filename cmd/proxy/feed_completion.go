package main

import (
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// origin is who tells a change.
type origin int

const (
	fromObjects origin = iota
	fromInterfaces
	origins
)

// completion makes the first change the complete state, as the proxy needs it: with one part of it missing, the first sync would
// take from the kernel what an earlier proxy left there for good reason, Services or the addresses that serve node ports.
type completion struct {
	sync.Mutex
	told    [origins]bool
	waiting model.Change // what was told before all had told something
	begun   bool         // the first change has been handed over
}

// add returns the change to hand over now, and whether there is one. The first is handed over even if it is empty: the state may
// be nothing.
func (c *completion) add(from origin, change model.Change) (model.Change, bool) {
	c.told[from] = true
	switch {
	case c.told != [origins]bool{true, true}:
		c.waiting = c.waiting.Then(change)
		return model.Change{}, false
	case !c.begun:
		change, c.waiting, c.begun = c.waiting.Then(change), model.Change{}, true
		return change, true
	}
	return change, !change.IsEmpty()
}
