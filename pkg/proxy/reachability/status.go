package reachability

import (
	"cmp"
	"slices"
	"time"
)

// Status is what is known, for people.
type Status struct {
	Unreachable []Silent
	// Answering and Never count the other nodes by whether they ever answered a dial: those that never did are not judged.
	Answering, Never int
	CutOffSince      *time.Time
}

// Silent is a node that does not answer.
type Silent struct {
	Node       string
	Since      time.Time
	LastAnswer time.Time
	NextDial   time.Time
	Answers    int // in a row, of those that it needs
	Needed     int
}

// Status returns what is known, by the names of the nodes.
func (j *Judge) Status() Status {
	s := Status{CutOffSince: j.alone.since}
	for _, n := range j.nodes {
		if n.usual == NoAnswer {
			s.Never++
		} else {
			s.Answering++
		}
	}
	for _, n := range j.active {
		if o := n.out; o != nil {
			s.Unreachable = append(s.Unreachable, Silent{n.name, o.since, n.answered, o.next, o.answers, o.needed})
		}
	}
	slices.SortFunc(s.Unreachable, func(a, b Silent) int { return cmp.Compare(a.Node, b.Node) })
	return s
}
