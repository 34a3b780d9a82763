package reachability

import (
	"cmp"
	"slices"
	"time"
)

// Status is what is known, for people.
type Status struct {
	Ejected []EjectedNode
	// WithBaseline and Never count the other nodes by whether they ever replied to a probe: those that never did are not
	// ejected.
	WithBaseline, WithoutBaseline int
	IsolatedSince                 *time.Time
	// HasNoControl: one other node replies, and no API server is on a third machine. Whether that node is dead or this one
	// isolated cannot be told apart, so nobody is ejected.
	HasNoControl bool
}

// EjectedNode is a node that does not reply.
type EjectedNode struct {
	Node      string
	Since     time.Time
	LastReply time.Time
	NextProbe time.Time
}

// Status returns what is known, by the names of the nodes.
func (d *Detector) Status() Status {
	s := Status{IsolatedSince: d.isolation}
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
	isThird := func(server server) bool { return server.node == nil }
	s.HasNoControl = s.WithBaseline-len(s.Ejected) == 1 && !slices.ContainsFunc(d.servers, isThird)
	slices.SortFunc(s.Ejected, func(a, b EjectedNode) int { return cmp.Compare(a.Node, b.Node) })
	return s
}
