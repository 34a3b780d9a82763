package model

import (
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Why is why the endpoints on a node are tried last. If a node has several reasons, the one furthest down this list
// decides, and its endpoints are tried after those of nodes with a reason further up.
type Why uint8

const (
	// Evacuated is a node that has a label which says so.
	Evacuated Why = iota
	// Unreachable is a node that does not answer this one. Other nodes may see it differently.
	Unreachable
	// Whys is how many there are.
	Whys = iota
)

// whys describes them. All code that selects by, watches or names reasons reads it here.
var whys = [Whys]struct {
	// name is the word for an endpoint on such a node, capitalized: it is part of the names of reasons, too.
	name string
	// only ends a sentence about endpoints that all run on such nodes, and spared one about an endpoint on such a node
	// that others replace. {until} and {since} stand for what an Avoid says.
	only, spared string
	// label on a Node gives the reason, and read reads its value. A reason without a label comes from elsewhere: this node
	// observes that the other one does not answer.
	label string
	read  func(value string) (isGiven bool, until *time.Time, err error)
}{
	Evacuated: {
		name: "Evacuated", only: "is being evacuated, and goes on serving", spared: "is being evacuated{until}",
		label: policy.EvacuateLabel, read: policy.ParseEvacuate,
	},
	Unreachable: {
		name: "Unreachable", only: "does not answer this one, and is tried all the same",
		spared: "has not answered this node{since}",
	},
}

// Name is the word for an endpoint on such a node, capitalized.
func (w Why) Name() string { return whys[w].name }

// String is the same word in lower case.
func (w Why) String() string { return strings.ToLower(whys[w].name) }

// Only ends "every endpoint runs on a node that".
func (w Why) Only() string { return whys[w].only }

// Spared ends "the endpoint runs on a node, which".
func (w Why) Spared() string { return whys[w].spared }

// Label is the label that gives the reason; empty if none does.
func (w Why) Label() string { return whys[w].label }

// Read returns what the labels of a node hold against it for this reason; nil if they say nothing, or something
// unreadable. An evacuation that has ended still counts here, until a caller that knows the time lifts it.
func (w Why) Read(labels map[string]string) *Avoid {
	value, isLabelled := labels[whys[w].label]
	if !isLabelled || whys[w].read == nil {
		return nil
	}
	isGiven, until, err := whys[w].read(value)
	if err != nil || !isGiven {
		return nil
	}
	return &Avoid{Why: w, Until: until}
}

// Avoid takes the endpoints on a node out of new connections, as long as others may serve in their place.
type Avoid struct {
	Why Why
	// Until is when it ends; nil: no end is known. A caller with a clock turns the end into a change.
	Until *time.Time
	// Since is when it began; zero: unknown.
	Since time.Time
	// IsLasting: it has lasted for so long that no open connection survived it.
	IsLasting bool
	// Families are those of the endpoints that it concerns; nil: both.
	Families []Family
	// Alike is what all nodes hold against the node alike, if this is what one node alone has seen; nil if that is
	// nothing.
	Alike *Avoid
}

// SeenByAll returns what all nodes hold against a node alike: plans for all nodes are based on it.
func (a *Avoid) SeenByAll() *Avoid {
	if a != nil && a.Why == Unreachable {
		return a.Alike
	}
	return a
}

// Against is a node and a reason to avoid it: each reason comes and goes on its own.
type Against struct {
	Node string
	Why  Why
}

// End says when an evacuation ends, for people.
func (a *Avoid) End() string {
	if a.Until == nil {
		return "the label " + policy.EvacuateLabel + " goes"
	}
	return a.Until.UTC().Format("2006-01-02 15:04 UTC")
}

// Is reports whether that is the reason; false for nil.
func (a *Avoid) Is(why Why) bool { return a != nil && a.Why == why }

// Level is 0 for a node that is not avoided; the higher it is, the later its endpoints are tried.
func (a *Avoid) Level() Rank {
	if a == nil {
		return 0
	}
	return 1 + Rank(a.Why)
}

// avoids is why the endpoints on a node are tried last, by family; nil if they are not.
type avoids [2]*Avoid

// effect is what decisions depend on: how late the endpoints of a family are tried here, and elsewhere.
type effect struct {
	here, elsewhere Rank
	isLasting       bool
}

func (a avoids) effects() (effects [2]effect) {
	for family, avoid := range a {
		effects[family] = effect{avoid.Level(), avoid.SeenByAll().Level(), avoid != nil && avoid.IsLasting}
	}
	return effects
}

// Avoid returns why the endpoints on a node are tried last in a family; nil if they are not.
func (c *Cluster) Avoid(node string, family Family) *Avoid { return c.avoid[node][family] }

// Evacuated counts the nodes that are being evacuated: until a time, or until their label goes.
func (c *Cluster) Evacuated() (timed, open int) {
	for against, avoid := range c.against {
		switch {
		case against.Why != Evacuated:
		case avoid.Until == nil:
			open++
		default:
			timed++
		}
	}
	return timed, open
}

// MarkAvoided marks the endpoints whose nodes are avoided.
func (c *Cluster) MarkAvoided(endpoints []PortEndpoint) {
	if len(c.avoid) == 0 {
		return
	}
	for i := range endpoints {
		endpoints[i].Avoid = c.Avoid(endpoints[i].Node, FamilyOf(endpoints[i].Addr.Addr()))
	}
}

// families are those of the endpoints that it concerns.
func (a *Avoid) families() []Family {
	switch {
	case a == nil:
		return nil
	case a.Families == nil:
		return Families
	}
	return a.Families
}

// over returns it in place of a reason further up the list.
func (a *Avoid) over(other *Avoid) *Avoid {
	if a.Why != Unreachable || other == nil {
		return a
	}
	return &Avoid{Why: a.Why, Until: a.Until, Since: a.Since, IsLasting: a.IsLasting, Families: a.Families, Alike: other}
}

// applyAvoid marks the Services that have endpoints on nodes that are avoided from now on, for another reason than
// before, or no longer.
func (c *Cluster) applyAvoid(changes map[Against]*Avoid, dirty map[ObjectName]bool) {
	before := map[string]avoids{}
	for against, avoid := range changes {
		if _, noted := before[against.Node]; !noted {
			before[against.Node] = c.avoid[against.Node]
		}
		if c.against[against] = avoid; avoid == nil {
			delete(c.against, against)
		}
	}
	changed := map[string]bool{}
	for node, before := range before {
		var now avoids
		for why := range Why(Whys) {
			avoid := c.against[Against{node, why}]
			for _, family := range avoid.families() {
				now[family] = avoid.over(now[family])
			}
		}
		if c.avoid[node] = now; now == (avoids{}) {
			delete(c.avoid, node)
		}
		if now.effects() != before.effects() {
			changed[node] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	for _, slice := range c.slices {
		if !dirty[slice.Service] && slice.isOn(changed) {
			dirty[slice.Service] = true
		}
	}
}

// IsOver reports whether it has ended by a time.
func (a *Avoid) IsOver(now time.Time) bool { return a.Until != nil && !now.Before(*a.Until) }
