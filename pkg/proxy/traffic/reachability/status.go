package reachability

import (
	"cmp"
	"slices"
	"time"
)

// Status describes the state of a Detector for display.
type Status struct {
	Ejected []EjectedNode
	// WithBaseline and WithoutBaseline count the other nodes by whether they ever replied to a probe. Nodes without a
	// baseline are never ejected.
	WithBaseline, WithoutBaseline int
	IsolatedSince                 *time.Time
	// HasNoControl is set if only one other node replies and no API server is on a third machine. Then a failure of that
	// node cannot be distinguished from isolation of this one, so no node is ejected.
	HasNoControl bool
}

// EjectedNode describes a node that does not reply.
type EjectedNode struct {
	Node      string
	Since     time.Time
	LastReply time.Time
	NextProbe time.Time
}

// Status returns the current state. Ejected nodes are sorted by name.
func (d *Detector) Status() Status {
	s := Status{IsolatedSince: d.isolatedSince}
	for _, n := range d.nodes {
		if n.best() == NoReply {
			s.WithoutBaseline++
		} else {
			s.WithBaseline++
		}
	}
	for _, n := range d.active {
		if e := n.ejection; e != nil {
			s.Ejected = append(s.Ejected, EjectedNode{n.name, e.since, n.lastReply, e.nextRound})
		}
	}
	isOnOtherMachine := func(srv server) bool { return srv.node == nil }
	s.HasNoControl = s.WithBaseline-len(s.Ejected) == 1 && !slices.ContainsFunc(d.servers, isOnOtherMachine)
	slices.SortFunc(s.Ejected, func(a, b EjectedNode) int { return cmp.Compare(a.Node, b.Node) })
	return s
}
