package reachability

import (
	"cmp"
	"slices"
	"time"
)

// controls are dials at nodes that nobody suspects, and at API servers if there are too few nodes.
type controls struct {
	last map[string]time.Time // when those who answered were dialled; an API server by its address
	back []time.Time          // when nodes that are out were dialled within the last second
}

// heard takes in the result of a control.
func (c *controls) heard(what errand, kind Kind) {
	if kind == NoAnswer {
		return
	}
	if c.last == nil {
		c.last = map[string]time.Time{}
	}
	if c.last[what.node].Before(what.made) {
		c.last[what.node] = what.made
	}
}

// answered reports whether anybody except a given node has answered a dial that was made at a time or later.
func (c *controls) answered(name string, since time.Time) bool {
	for other, made := range c.last {
		if other != name && !made.Before(since) {
			return true
		}
	}
	return false
}

// alone is what is known while nobody answers.
type alone struct {
	since *time.Time
	next  time.Time // when others are dialled
	turn  int
}

// cutOff notes that nobody answers.
func (j *Judge) cutOff(now time.Time) {
	if j.alone.since == nil {
		j.alone = alone{since: &now, next: now}
		j.told.CutOff = true
	}
}

// reconnect notes that somebody does answer.
func (j *Judge) reconnect() {
	if j.alone.since != nil {
		j.alone = alone{}
		j.told.Reconnected = true
	}
}

// dialControls dials nodes that are not dialled as suspects: those of other zones first, and among them those that
// answered last. Nodes that were dialled for the same trials and have not answered yet come last: they may be dead,
// too.
func (j *Judge) dialControls(now time.Time, within time.Duration, suspects []*node) {
	if j.rules.controls == 0 {
		return
	}
	began, zones := now, map[string]bool{}
	for _, n := range suspects {
		zones[n.place.Zone] = true
		if n.trial.began.Before(began) {
			began = n.trial.began
		}
	}
	silent := map[string]bool{}
	for _, what := range j.pending {
		if what.asControl && !what.made.Before(began) {
			silent[what.node] = true
		}
	}
	var others []*node
	for _, name := range j.names {
		n := j.nodes[name]
		isTheOnlySuspect := len(suspects) == 1 && n == suspects[0]
		if n.usual != NoAnswer && n.out == nil && !isTheOnlySuspect {
			others = append(others, n)
		}
	}
	rank := func(n *node) int {
		switch {
		case n.trial != nil:
			return 3
		case silent[n.name]:
			return 2
		case zones[n.place.Zone]:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(others, func(a, b *node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), b.answered.Compare(a.answered))
	})
	for _, n := range others[:min(len(others), j.rules.controls)] {
		j.dial(now, n.place.Addr, within, errand{node: n.name, asControl: true})
	}
	if len(others) < 2 || len(suspects) > 1 && len(others) < 3 {
		j.dialServers(now, within)
	}
}

// dialServers dials API servers in place of nodes.
func (j *Judge) dialServers(now time.Time, within time.Duration) {
	for _, addr := range j.servers[:min(len(j.servers), j.rules.controls)] {
		j.dial(now, addr, within, errand{asControl: true})
	}
}

// dialAlone dials others one after the other, while nobody answers.
func (j *Judge) dialAlone(now time.Time) {
	if j.alone.since == nil || now.Before(j.alone.next) {
		return
	}
	j.alone.next = now.Add(backEvery)
	var others []*node
	for _, name := range j.names {
		if n := j.nodes[name]; n.usual != NoAnswer && n.out == nil {
			others = append(others, n)
		}
	}
	for range min(j.rules.controls, len(others)) {
		n := others[j.alone.turn%len(others)]
		j.alone.turn++
		j.dial(now, n.place.Addr, j.rules.window, errand{node: n.name, asControl: true})
	}
	j.dialServers(now, j.rules.window)
}
