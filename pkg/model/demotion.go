package model

import (
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// DemotionReason is why the endpoints on a node are tried last. If a node has several reasons, the one furthest down this list
// decides, and its endpoints are tried after those of nodes with a reason further up.
type DemotionReason uint8

const (
	// Evacuated is a node that has a label which says so.
	Evacuated DemotionReason = iota
	// Unreachable is a node that does not answer this one. Other nodes may see it differently.
	Unreachable
	// NumDemotionReasons is how many there are.
	NumDemotionReasons = iota
)

// demotionReasons describes them. All code that selects by, watches or names reasons reads it here.
var demotionReasons = [NumDemotionReasons]struct {
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

// Title is the word for an endpoint on such a node, capitalized.
func (w DemotionReason) Title() string { return demotionReasons[w].name }

// String is the same word in lower case.
func (w DemotionReason) String() string { return strings.ToLower(demotionReasons[w].name) }

// AllDemotedText ends "every endpoint runs on a node that".
func (w DemotionReason) AllDemotedText() string { return demotionReasons[w].only }

// SkippedText ends "the endpoint runs on a node, which".
func (w DemotionReason) SkippedText() string { return demotionReasons[w].spared }

// Label is the label that gives the reason; empty if none does.
func (w DemotionReason) Label() string { return demotionReasons[w].label }

// FromLabels returns what the labels of a node hold against it for this reason; nil if they say nothing, or something
// unreadable. An evacuation that has ended still counts here, until a caller that knows the time lifts it.
func (w DemotionReason) FromLabels(labels map[string]string) *Demotion {
	value, isLabelled := labels[demotionReasons[w].label]
	if !isLabelled || demotionReasons[w].read == nil {
		return nil
	}
	isGiven, until, err := demotionReasons[w].read(value)
	if err != nil || !isGiven {
		return nil
	}
	return &Demotion{Reason: w, Until: until}
}

// Demotion takes the endpoints on a node out of new connections, as long as others may serve in their place.
type Demotion struct {
	Reason DemotionReason
	// Until is when it ends; nil: no end is known. A caller with a clock turns the end into a change.
	Until *time.Time
	// Since is when it began; zero: unknown.
	Since time.Time
	// IsLasting: it has lasted for so long that no open connection survived it.
	IsLasting bool
	// Families are those of the endpoints that it concerns; nil: both.
	Families []Family
	// Shared is what all nodes hold against the node alike, if this is what one node alone has seen; nil if that is
	// nothing.
	Shared *Demotion
}

// ClusterWide returns what all nodes hold against a node alike: plans for all nodes are based on it.
func (a *Demotion) ClusterWide() *Demotion {
	if a != nil && a.Reason == Unreachable {
		return a.Shared
	}
	return a
}

// DemotionKey is a node and a reason to avoid it: each reason comes and goes on its own.
type DemotionKey struct {
	Node   string
	Reason DemotionReason
}

// EndText says when an evacuation ends, for people.
func (a *Demotion) EndText() string {
	if a.Until == nil {
		return "the label " + policy.EvacuateLabel + " goes"
	}
	return a.Until.UTC().Format("2006-01-02 15:04 UTC")
}

// HasReason reports whether that is the reason; false for nil.
func (a *Demotion) HasReason(reason DemotionReason) bool { return a != nil && a.Reason == reason }

// Level is 0 for a node that is not avoided; the higher it is, the later its endpoints are tried.
func (a *Demotion) Level() Rank {
	if a == nil {
		return 0
	}
	return 1 + Rank(a.Reason)
}

// avoids is why the endpoints on a node are tried last, by family; nil if they are not.
type avoids [2]*Demotion

// effect is what decisions depend on: how late the endpoints of a family are tried here, and elsewhere.
type effect struct {
	local, elsewhere Rank
	isLasting        bool
}

func (a avoids) effects() (effects [2]effect) {
	for family, demotion := range a {
		effects[family] = effect{demotion.Level(), demotion.ClusterWide().Level(), demotion != nil && demotion.IsLasting}
	}
	return effects
}

// DemotionOf returns why the endpoints on a node are tried last in a family; nil if they are not.
func (c *Cluster) DemotionOf(node string, family Family) *Demotion { return c.effective[node][family] }

// Evacuated counts the nodes that are being evacuated: until a time, or until their label goes.
func (c *Cluster) Evacuated() (timed, open int) {
	for key, demotion := range c.demotions {
		switch {
		case key.Reason != Evacuated:
		case demotion.Until == nil:
			open++
		default:
			timed++
		}
	}
	return timed, open
}

// MarkDemoted marks the endpoints whose nodes are avoided.
func (c *Cluster) MarkDemoted(endpoints []PortEndpoint) {
	if len(c.effective) == 0 {
		return
	}
	for i := range endpoints {
		endpoints[i].Demotion = c.DemotionOf(endpoints[i].Node, FamilyOf(endpoints[i].Addr.Addr()))
	}
}

// families are those of the endpoints that it concerns.
func (a *Demotion) families() []Family {
	switch {
	case a == nil:
		return nil
	case a.Families == nil:
		return Families
	}
	return a.Families
}

// over returns it in place of a reason further up the list.
func (a *Demotion) over(other *Demotion) *Demotion {
	if a.Reason != Unreachable || other == nil {
		return a
	}
	return &Demotion{Reason: a.Reason, Until: a.Until, Since: a.Since, IsLasting: a.IsLasting, Families: a.Families, Shared: other}
}

// applyDemotions marks the Services that have endpoints on nodes that are avoided from now on, for another reason than
// before, or no longer.
func (c *Cluster) applyDemotions(changes map[DemotionKey]*Demotion, dirty map[ObjectName]bool) {
	before := map[string]avoids{}
	for key, demotion := range changes {
		if _, noted := before[key.Node]; !noted {
			before[key.Node] = c.effective[key.Node]
		}
		if c.demotions[key] = demotion; demotion == nil {
			delete(c.demotions, key)
		}
	}
	changed := map[string]bool{}
	for node, before := range before {
		var now avoids
		for reason := range DemotionReason(NumDemotionReasons) {
			demotion := c.demotions[DemotionKey{node, reason}]
			for _, family := range demotion.families() {
				now[family] = demotion.over(now[family])
			}
		}
		if c.effective[node] = now; now == (avoids{}) {
			delete(c.effective, node)
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

// IsExpired reports whether it has ended by a time.
func (a *Demotion) IsExpired(now time.Time) bool { return a.Until != nil && !now.Before(*a.Until) }
