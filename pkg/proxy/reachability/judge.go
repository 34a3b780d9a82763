package reachability

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Judge knows all other nodes, and decides which of them do not answer this one. Its other methods take in what
// happened; Step says what to do about it.
type Judge struct {
	own      string
	rules    rules
	nodes    map[string]*node
	names    []string         // of the nodes, sorted
	active   map[string]*node // those that are under trial, or out
	servers  []netip.AddrPort // of the API
	looks    looks
	wolves   wolves
	controls controls
	alone    alone
	waiting  map[string]*suspects // who is suspected, until there is room for a trial
	pending  map[uint64]errand
	lastDial uint64
	stepped  time.Time
	learning time.Time // when to look for nodes that are to be dialled for their usual answer
	told     Orders    // what happened since the last step
}

// errand is what a dial is for.
type errand struct {
	node  string // empty for an API server
	trial *trial
	made  time.Time
	// asControl: it tells whether this node is cut off.
	asControl bool
	toLearn   bool
}

// suspects are the unanswered connections to a node's endpoints.
type suspects struct {
	pairs map[pair]bool
	flows int
}

// Orders are what is to be done, and what was decided.
type Orders struct {
	Dials []Dial
	// Ask names nodes. The answered connections to their endpoints are to be reported: see Flows.
	Ask []string
	// Out do not answer any more, and Back do again.
	Out  []string
	Back []Return
	// Ended are how suspicions ended.
	Ended []Outcome
	// CutOff and Reconnected: this node is alone, or is no longer.
	CutOff, Reconnected bool
	// Next is when to call again, if nothing happens before.
	Next time.Time
}

// Return is a node that answers again.
type Return struct {
	Node  string
	Since time.Time // it did not answer
	// Gone: nothing leads there any more, or its address changed. Whether it answers is unknown.
	Gone bool
}

// Dial is a connection to be made, from a new port, and closed at once.
type Dial struct {
	ID     uint64
	Addr   netip.AddrPort
	Within time.Duration
}

// NewJudge returns a judge of the nodes other than its own.
func NewJudge(own string) *Judge { return newJudge(own, defaults) }

func newJudge(own string, r rules) *Judge {
	j := &Judge{
		own: own, rules: r, nodes: map[string]*node{}, active: map[string]*node{}, waiting: map[string]*suspects{},
		pending: map[uint64]errand{},
	}
	j.looks.rules, j.wolves.rules = &j.rules, &j.rules
	return j
}

// Place takes in which nodes have endpoints and an address at which they are dialled, and where API servers are. A new
// node, or one with a new address, counts as one that never answered.
func (j *Judge) Place(now time.Time, places map[string]Place, servers []netip.AddrPort) {
	j.servers = servers
	for name, n := range j.nodes {
		if place, there := places[name]; !there || place.Addr != n.place.Addr {
			j.drop(n)
		}
	}
	for name, place := range places {
		switch n := j.nodes[name]; {
		case name == j.own:
		case n != nil:
			n.place = place
		default:
			learnAt := now.Add(spread(j.own, name, firstDials(len(places))))
			j.nodes[name] = &node{name: name, place: place, learnAt: learnAt}
			j.learning = earlier(j.learning, learnAt)
		}
	}
	j.names = slices.Sorted(maps.Keys(j.nodes))
}

func (j *Judge) drop(n *node) {
	delete(j.nodes, n.name)
	delete(j.active, n.name)
	delete(j.waiting, n.name)
	delete(j.controls.last, n.name)
	if n.out != nil {
		j.told.Back = append(j.told.Back, Return{n.name, n.out.since, true})
	}
}

// Looked takes in all connections that a look found without an answer. Those that were there in an earlier look are a
// suspicion against the nodes of their endpoints.
func (j *Judge) Looked(now time.Time, flows []Flow) {
	clear(j.waiting)
	for _, flow := range j.looks.old(now, flows) {
		n := j.nodes[flow.Node]
		if n == nil || n.out != nil || n.usual == NoAnswer && j.rules.learned {
			continue
		}
		p := flow.pair()
		switch {
		case n.trial != nil:
			n.trial.accuse(p, &j.rules)
			continue
		case !j.wolves.believed(now, p):
			continue
		case j.waiting[flow.Node] == nil:
			j.waiting[flow.Node] = &suspects{pairs: map[pair]bool{}}
		}
		j.waiting[flow.Node].pairs[p] = true
		j.waiting[flow.Node].flows++
	}
}

// Answered takes in the result of a dial, and how long it took. Every dial must get a result.
func (j *Judge) Answered(now time.Time, id uint64, kind Kind, took time.Duration) {
	what, known := j.pending[id]
	if !known {
		return
	}
	delete(j.pending, id)
	if kind == NotDialled {
		j.notDialled(now, what)
		return
	}
	if what.asControl {
		j.controls.heard(what, kind)
	}
	if kind != NoAnswer {
		j.reconnect()
	}
	n := j.nodes[what.node]
	if n == nil {
		return
	}
	switch {
	case n.out != nil && what.asControl && kind == NoAnswer:
	case n.out != nil:
		j.heardOf(now, n, kind, took)
	case kind != NoAnswer:
		n.learn(now, kind, took)
		if n.trial != nil {
			j.conclude(now, n, Answered)
		}
	case n.trial != nil && n.trial == what.trial:
		n.trial.unanswered++
	case what.toLearn:
		n.learnAt = now.Add(min(learnWithin<<n.tries, learnAgain))
		n.tries = min(n.tries+1, 6)
		j.learning = earlier(j.learning, n.learnAt)
	}
}

// notDialled takes in that a dial was not made. A trial that lacks one of its dials is void.
func (j *Judge) notDialled(now time.Time, what errand) {
	n := j.nodes[what.node]
	switch {
	case n == nil:
	case n.trial != nil && n.trial == what.trial:
		j.conclude(now, n, Void)
	case n.out != nil && !what.asControl:
		n.out.dialled = false
	}
}

// heardOf takes in an answer of a node that is out.
func (j *Judge) heardOf(now time.Time, n *node, kind Kind, took time.Duration) {
	if !n.heard(now, kind, &j.rules) {
		return
	}
	j.told.Back = append(j.told.Back, Return{n.name, n.out.since, false})
	n.out, n.fell, n.usual = nil, now, kind
	delete(j.active, n.name)
	n.learn(now, kind, took)
}

// Flows takes in the answered connections to the endpoints of nodes that were asked for. A node that is missing has
// none. If told is false, the connections could not be listed, nothing is known, and the trials begin again.
func (j *Judge) Flows(nodes []string, ids map[string][]uint32, told bool) {
	for _, name := range nodes {
		n := j.nodes[name]
		switch {
		case n == nil || n.trial == nil || !n.trial.asked:
		case told:
			n.trial.told(ids[name])
		default:
			n.trial = nil
			delete(j.active, name)
		}
	}
}

// Step decides what is due. It is called again at Next, and after each of the other calls.
func (j *Judge) Step(now time.Time) Orders {
	if now.Before(j.stepped) {
		j.startAgain(now)
	}
	j.stepped = now
	j.decide(now)
	j.begin(now)
	active := slices.SortedFunc(maps.Values(j.active), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	j.dialSuspects(now, active)
	j.dialAlone(now)
	j.dialOut(now, active)
	j.dialForUsual(now)
	orders := j.told
	j.told = Orders{}
	orders.Next = j.next(now)
	return orders
}

// startAgain is for a clock that was set back: due times are now wrong, and answers seem to have come later than they
// did. Trials begin again with the next look.
func (j *Judge) startAgain(now time.Time) {
	j.controls.last = nil
	for _, n := range j.nodes {
		if n.trial != nil {
			n.trial = nil
			delete(j.active, n.name)
		}
		if n.out != nil && n.out.next.After(now.Add(backEvery)) {
			n.out.next = now
		}
		if n.learnAt.After(now.Add(learnAgain)) {
			n.learnAt = now.Add(spread(j.own, n.name, firstDials(len(j.nodes))))
		}
	}
	j.learning = now
	j.alone.next = now
}

// begin begins trials of the nodes with most suspicious connections, as far as there is room.
func (j *Judge) begin(now time.Time) {
	if j.alone.since != nil || len(j.waiting) == 0 {
		return
	}
	under := 0
	for _, n := range j.active {
		if n.trial != nil {
			under++
		}
	}
	names := slices.SortedFunc(maps.Keys(j.waiting), func(a, b string) int {
		return cmp.Or(cmp.Compare(j.waiting[b].flows, j.waiting[a].flows), cmp.Compare(a, b))
	})
	for _, name := range names {
		if under >= j.rules.trials {
			return
		}
		n := j.nodes[name]
		n.trial = &trial{began: now, window: j.rules.window, accused: map[pair]bool{}}
		j.active[name] = n
		if n.usual != NoAnswer && n.took < j.rules.soon {
			n.trial.window = j.rules.shortWindow
		}
		for p := range j.waiting[name].pairs {
			n.trial.accuse(p, &j.rules)
		}
		delete(j.waiting, name)
		under++
	}
}

// decide ends the trials whose time is over.
func (j *Judge) decide(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(j.active)) {
		n := j.active[name]
		if n.trial == nil {
			continue
		}
		if n.trial.wants(now, &j.rules) {
			n.trial.asked = true
			j.told.Ask = append(j.told.Ask, name)
		}
		outcome, isOver := n.trial.verdict(now, j.controls.answered(name, n.trial.last), &j.rules)
		if isOver {
			j.conclude(now, n, outcome)
		}
	}
}

// conclude ends a trial.
func (j *Judge) conclude(now time.Time, n *node, outcome Outcome) {
	accusers := n.trial.accusers
	n.trial = nil
	delete(j.active, n.name)
	if outcome == Void {
		return
	}
	j.told.Ended = append(j.told.Ended, outcome)
	switch outcome {
	case Answered, FlowsAnswered:
		for _, p := range accusers {
			j.wolves.cried(now, p)
		}
	case CutOff:
		j.cutOff(now)
	case Void:
	case Unanswered:
		n.fall(now, &j.rules)
		j.active[n.name] = n
		j.told.Out = append(j.told.Out, n.name)
	}
}

// dial orders a dial.
func (j *Judge) dial(now time.Time, addr netip.AddrPort, within time.Duration, what errand) {
	j.lastDial++
	what.made = now
	j.pending[j.lastDial] = what
	j.told.Dials = append(j.told.Dials, Dial{j.lastDial, addr, within})
}

// dialSuspects dials the nodes under trial. From the second dial on, others are dialled just before, so that a short
// interruption affects both.
func (j *Judge) dialSuspects(now time.Time, active []*node) {
	var due []*node
	var within time.Duration
	for _, n := range active {
		if n.trial != nil && n.trial.wantsDial(now, &j.rules) {
			due = append(due, n)
			if n.trial.made > 0 {
				within = max(within, n.trial.rest())
			}
		}
	}
	if within > 0 {
		j.dialControls(now, within, due)
	}
	for _, n := range due {
		j.dial(now, n.place.Addr, n.trial.rest(), errand{node: n.name, trial: n.trial})
		n.trial.made, n.trial.last = n.trial.made+1, now
	}
}

// dialOut dials nodes that are out, those first who wait longest.
func (j *Judge) dialOut(now time.Time, active []*node) {
	var due []*node
	for _, n := range active {
		if n.out != nil && !n.out.dialled && !now.Before(n.out.next) {
			due = append(due, n)
		}
	}
	slices.SortStableFunc(due, func(a, b *node) int { return a.out.next.Compare(b.out.next) })
	for _, n := range due[:min(len(due), j.roomBack(now))] {
		n.out.dialled, n.out.next = true, now.Add(backEvery)
		j.controls.back = append(j.controls.back, now)
		j.dial(now, n.place.Addr, j.rules.window, errand{node: n.name})
	}
}

// roomBack is how many nodes that are out may be dialled now.
func (j *Judge) roomBack(now time.Time) int {
	j.controls.back = slices.DeleteFunc(j.controls.back, func(at time.Time) bool {
		return now.Sub(at) >= time.Second || now.Before(at)
	})
	return backPerSecond - len(j.controls.back)
}

// dialForUsual dials nodes to learn how they answer.
func (j *Judge) dialForUsual(now time.Time) {
	if now.Before(j.learning) {
		return
	}
	j.learning = now.Add(learnAgain)
	made := 0
	for _, name := range j.names {
		n := j.nodes[name]
		if made < learnAtOnce && !now.Before(n.learnAt) {
			made++
			n.learnAt = now.Add(learnAgain)
			if n.trial == nil && n.out == nil {
				j.dial(now, n.place.Addr, j.rules.window, errand{node: name, toLearn: true})
			}
		}
		j.learning = earlier(j.learning, n.learnAt)
	}
	j.learning = later(j.learning, now.Add(time.Second)) // not all nodes are looked at for each
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

// next is when something is due even if nothing is reported.
func (j *Judge) next(now time.Time) time.Time {
	next := now.Add(idle)
	if len(j.nodes) > 0 {
		next = earlier(next, j.learning)
	}
	for _, n := range j.active {
		switch {
		case n.trial != nil && n.trial.made < j.rules.dials:
			next = earlier(next, n.trial.due())
		case n.trial != nil && now.Before(n.trial.end(&j.rules)):
			next = earlier(next, n.trial.end(&j.rules))
		case n.out != nil && !n.out.dialled:
			next = earlier(next, n.out.next)
		}
	}
	if j.alone.since != nil {
		next = earlier(next, j.alone.next)
	}
	return later(next, now.Add(10*time.Millisecond))
}
