package model

import "maps"

// Change is what became different in the cluster: each object in its new state, or nil if it is gone.
type Change struct {
	Services map[ObjectName]*Service
	Slices   map[ObjectName]*EndpointSlice
	Nodes    map[string]*Node
}

// IsEmpty reports whether nothing changed.
func (c Change) IsEmpty() bool { return len(c.Services)+len(c.Slices)+len(c.Nodes) == 0 }

// Then returns the change that c and then later make together.
func (c Change) Then(later Change) Change {
	return Change{
		Services: merge(c.Services, later.Services),
		Slices:   merge(c.Slices, later.Slices),
		Nodes:    merge(c.Nodes, later.Nodes),
	}
}

func merge[K comparable, V any](earlier, later map[K]V) map[K]V {
	merged := make(map[K]V, len(earlier)+len(later))
	maps.Copy(merged, earlier)
	maps.Copy(merged, later)
	return merged
}
