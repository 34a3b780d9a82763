package model

import (
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// DemotionReason is why the endpoints on a node are tried last. The reasons are listed in ascending order: if a node
// has several, the last one decides, and its endpoints are tried after those of nodes with an earlier reason.
type DemotionReason uint8

const (
	// Evacuated means that the node is being evacuated (policy.EvacuateLabel).
	Evacuated DemotionReason = iota
	// Unreachable means that the node does not reply to this one. Other nodes may see it differently.
	Unreachable
	// NumDemotionReasons is the number of reasons.
	NumDemotionReasons = iota
)

// demotionReasons describes the reasons. All code that selects by, watches or names reasons uses this table.
var demotionReasons = [NumDemotionReasons]struct {
	// name is the capitalized adjective for an endpoint on such a node. It is also part of the names of selection reasons.
	name string
	// only is the end of a sentence about endpoints that all run on such nodes, spared that of one about a skipped
	// endpoint on such a node. The placeholders {until} and {since} stand for the fields of the Demotion.
	only, skipped string
	// label is the Node label that sets the reason, and read parses its value. A reason without a label comes from
	// elsewhere: this node observes that the other one does not reply.
	label string
	read  func(value string) (isGiven bool, until *time.Time, err error)
}{
	Evacuated: {
		name: "Evacuated", only: "is being evacuated, so these endpoints are used anyway", skipped: "is being evacuated{until}",
		label: policy.EvacuateLabel, read: policy.ParseEvacuate,
	},
	Unreachable: {
		name: "Unreachable", only: "does not reply to this one, so these endpoints are tried anyway",
		skipped: "has not replied to this node{since}",
	},
}

// Title returns the capitalized adjective for an endpoint on such a node.
func (r DemotionReason) Title() string { return demotionReasons[r].name }

// String returns the adjective in lower case.
func (r DemotionReason) String() string { return strings.ToLower(demotionReasons[r].name) }

// AllDemotedText returns the end of "every endpoint runs on a node that …".
func (r DemotionReason) AllDemotedText() string { return demotionReasons[r].only }

// SkippedText returns the end of "the endpoint runs on a node, which …".
func (r DemotionReason) SkippedText() string { return demotionReasons[r].skipped }

// Label returns the Node label that sets the reason; it is empty if there is none.
func (r DemotionReason) Label() string { return demotionReasons[r].label }

// FromLabels returns the demotion that a node's labels set for this reason. It returns nil if they set none or the
// value is invalid. An evacuation that has ended still counts here, until a caller with a clock ends it.
func (r DemotionReason) FromLabels(labels map[string]string) *Demotion {
	value, isLabelled := labels[demotionReasons[r].label]
	if !isLabelled || demotionReasons[r].read == nil {
		return nil
	}
	isDemoted, until, err := demotionReasons[r].read(value)
	if err != nil || !isDemoted {
		return nil
	}
	return &Demotion{Reason: r, Until: until}
}

// Demotion excludes the endpoints on a node from new connections while other endpoints can serve them.
type Demotion struct {
	Reason DemotionReason
	// Until is when the demotion ends; nil means that no end is known. A caller with a clock turns the end into a Change.
	Until *time.Time
	// Since is when the demotion began; zero means unknown.
	Since time.Time
	// IsLasting is set when the demotion has lasted so long that no open connection survived it.
	IsLasting bool
	// Families are the families of the endpoints concerned; nil means both.
	Families []Family
	// Shared is the cluster-wide demotion that this node-local one overrides; nil if there is none.
	Shared *Demotion
}

// ClusterWide returns the demotion that is the same on all nodes. Plans for all nodes are based on it.
func (d *Demotion) ClusterWide() *Demotion {
	if d != nil && d.Reason == Unreachable {
		return d.Shared
	}
	return d
}

// DemotionKey identifies a demotion. The reasons of a node start and end independently.
type DemotionKey struct {
	Node   string
	Reason DemotionReason
}

// EndText returns when an evacuation ends, for messages.
func (d *Demotion) EndText() string {
	if d.Until == nil {
		return "the label " + policy.EvacuateLabel + " is removed"
	}
	return d.Until.UTC().Format("2006-01-02 15:04 UTC")
}

// HasReason reports whether the demotion has the reason. It returns false for nil.
func (d *Demotion) HasReason(reason DemotionReason) bool { return d != nil && d.Reason == reason }

// Level returns 0 for a node without a demotion. The higher the level, the later its endpoints are tried.
func (d *Demotion) Level() Rank {
	if d == nil {
		return 0
	}
	return 1 + Rank(d.Reason)
}

// familyDemotions are a node's effective demotions by family; nil means that there is none.
type familyDemotions [2]*Demotion

// effect is the part of a demotion that decisions depend on: the level for a family on this node, and on other nodes.
type effect struct {
	local, clusterWide Rank
	isLasting          bool
}

func (d familyDemotions) effects() (effects [2]effect) {
	for family, demotion := range d {
		effects[family] = effect{demotion.Level(), demotion.ClusterWide().Level(), demotion != nil && demotion.IsLasting}
	}
	return effects
}

// DemotionOf returns the effective demotion of a node in a family; nil if there is none.
func (c *Cluster) DemotionOf(node string, family Family) *Demotion { return c.effective[node][family] }

// Evacuated returns how many nodes are being evacuated until a given time, and how many until their label is removed.
func (c *Cluster) Evacuated() (timed, openEnded int) {
	for key, demotion := range c.demotions {
		switch {
		case key.Reason != Evacuated:
		case demotion.Until == nil:
			openEnded++
		default:
			timed++
		}
	}
	return timed, openEnded
}

// MarkDemoted sets the Demotion of each endpoint.
func (c *Cluster) MarkDemoted(endpoints []PortEndpoint) {
	if len(c.effective) == 0 {
		return
	}
	for i := range endpoints {
		endpoints[i].Demotion = c.DemotionOf(endpoints[i].Node, FamilyOf(endpoints[i].Addr.Addr()))
	}
}

// families returns the families of the endpoints concerned; none for nil.
func (d *Demotion) families() []Family {
	switch {
	case d == nil:
		return nil
	case d.Families == nil:
		return Families
	}
	return d.Families
}

// withShared returns the effective demotion of a node that is also demoted by other, for an earlier reason.
func (d *Demotion) withShared(other *Demotion) *Demotion {
	if d.Reason != Unreachable || other == nil {
		return d
	}
	return &Demotion{Reason: d.Reason, Until: d.Until, Since: d.Since, IsLasting: d.IsLasting, Families: d.Families, Shared: other}
}

// applyDemotions marks the Services with endpoints on nodes whose effective demotion starts, ends or changes.
func (c *Cluster) applyDemotions(changes map[DemotionKey]*Demotion, dirty map[ObjectName]bool) {
	old := map[string]familyDemotions{}
	for key, demotion := range changes {
		if _, seen := old[key.Node]; !seen {
			old[key.Node] = c.effective[key.Node]
		}
		if c.demotions[key] = demotion; demotion == nil {
			delete(c.demotions, key)
		}
	}
	changed := map[string]bool{}
	for node, old := range old {
		var current familyDemotions
		for reason := range DemotionReason(NumDemotionReasons) {
			demotion := c.demotions[DemotionKey{node, reason}]
			for _, family := range demotion.families() {
				current[family] = demotion.withShared(current[family])
			}
		}
		if c.effective[node] = current; current == (familyDemotions{}) {
			delete(c.effective, node)
		}
		if current.effects() != old.effects() {
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

// IsExpired reports whether the demotion has ended by a time.
func (d *Demotion) IsExpired(now time.Time) bool { return d.Until != nil && !now.Before(*d.Until) }
