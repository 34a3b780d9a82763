package reachability

import (
	"hash/fnv"
	"net/netip"
	"time"
)

// Place is where a node is dialled, and where it is.
type Place struct {
	Addr netip.AddrPort
	Zone string
}

// Kind is the result of a dial.
type Kind uint8

// The kinds. An error at once is no answer either.
const (
	NoAnswer Kind = iota
	Refused       // a reset
	Accepted
	NotDialled // this machine could not dial, which says nothing of the node
)

// node is one other node.
type node struct {
	name  string
	place Place
	// usual is how it answers, NoAnswer if it never did; took is how long that took.
	usual    Kind
	took     time.Duration
	answered time.Time // when it did last
	learnAt  time.Time
	tries    int // how many dials in a row, made to learn how it answers, had no answer
	trial    *trial
	out      *outage
	falls    int
	fell     time.Time // when it was last judged, or came back
}

// outage says what a node that does not answer has to do to come back.
type outage struct {
	since   time.Time
	answers int // in a row
	needed  int
	next    time.Time // when it is dialled
	dialled bool      // and an answer is awaited
	reset   time.Time // when it first reset a dial though it used to accept them; zero if it did not
}

// spread is a fraction of a time that depends on the dialled node and on the dialling one: so not all nodes are dialled
// at once, and no node is dialled by all at once.
func spread(from, to string, over time.Duration) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(from + "/" + to))
	return time.Duration(hash.Sum64() % uint64(over))
}

// firstDials is the time within which a given number of nodes are dialled for the first time.
func firstDials(nodes int) time.Duration {
	return min(learnWithin, max(time.Second, time.Duration(nodes)*learnEach))
}

// learn takes an answer in.
func (n *node) learn(now time.Time, kind Kind, took time.Duration) {
	n.answered, n.took, n.tries = now, took, 0
	n.usual = max(n.usual, kind)
}

// fall notes that a node is judged not to answer.
func (n *node) fall(now time.Time, r *rules) {
	if n.falls > 0 && now.Sub(n.fell) >= r.calm {
		n.falls = 0
	}
	n.falls++
	needed := min(1<<(2*min(n.falls-1, 8)), r.mostAnswers)
	n.fell, n.trial = now, nil
	n.out = &outage{since: now, needed: needed, next: now.Add(backEvery)}
}

// heard takes the outcome of a dial at a node that is out, and reports whether the node is back.
func (n *node) heard(now time.Time, kind Kind, r *rules) bool {
	o := n.out
	o.dialled = false
	switch {
	case kind == NoAnswer:
		o.answers, o.reset = 0, time.Time{}
		return false
	case kind < n.usual && (o.reset.IsZero() || now.Before(o.reset)):
		o.reset = now
		return false
	case kind < n.usual && now.Sub(o.reset) < r.reset:
		return false
	}
	o.answers++
	return o.answers >= o.needed
}
