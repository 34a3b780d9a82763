package demand

import (
	"math"
	"slices"
	"time"
)

// Which nodes are named, and which changes of their parts are published.
const (
	// nodeFloor is the part of all connections that a named node exceeds: so there are fewer than 128.
	nodeFloor = 1. / 128
	// busier is how many times its zone's mean a named node asks at least, and busySigmas how sure that is.
	busier, busySigmas = 1.25, 3
	// nodeBand is a difference, relative to the published part, that is ignored.
	nodeBand = 0.1
	// jumpSigmas is how far off a node must be in the last sample to indicate a change. There are thousands of nodes: with
	// changeSigmas one of them would be that far off by chance in every third sample.
	jumpSigmas = 6
)

// cluster is all nodes, sorted by name, and their zones, sorted by name.
type cluster struct {
	nodes  []Node
	zoneOf []int  // by the number of a node
	heard  []bool // likewise
	zones  []zone
}

// numberOf returns the number of a node; false if there is no such node.
func (c *cluster) numberOf(name string) (int, bool) {
	return slices.BinarySearchFunc(c.nodes, name, func(n Node, name string) int {
		switch {
		case n.Name < name:
			return -1
		case n.Name > name:
			return 1
		}
		return 0
	})
}

// nodeAverage is each node's demand on a Service. Older connections weigh less. It takes twice four bytes for each
// node: all nodes are followed, because busy nodes can only be recognized in the sum.
type nodeAverage struct {
	asked        []float32 // connections, by the number of the node
	last         []float32 // what each asked each second in the last sample
	all, squares float64   // as in average
}

// add takes in the last sample. Anew: what was before no longer counts.
func (a *nodeAverage) add(took, halfLife time.Duration, anew bool) {
	seconds, fade := took.Seconds(), math.Exp2(-took.Seconds()/halfLife.Seconds())
	var sample float64
	for _, rate := range a.last {
		sample += float64(rate) * seconds
	}
	if anew || a.jumps(seconds, sample) {
		fade = 0
	}
	for number, rate := range a.last {
		a.asked[number] = a.asked[number]*float32(fade) + rate*float32(seconds)
	}
	a.squares = a.squares*fade*fade + sample
	a.all = a.all*fade + sample
}

// keep has nodes of silent zones keep their parts in the last sample; without an average they have none.
func (a *nodeAverage) keep(c *cluster) {
	heard, kept := 0.0, 0.0
	for number := range a.last {
		if c.zones[c.zoneOf[number]].isSilent() {
			kept += a.part(number)
		} else {
			heard += float64(a.last[number])
		}
	}
	for number := range a.last {
		if c.zones[c.zoneOf[number]].isSilent() {
			a.last[number] = float32(keep(a.part(number), kept, heard))
		}
	}
}

// part returns a node's part of all.
func (a *nodeAverage) part(number int) float64 {
	if a.all == 0 {
		return 0
	}
	return float64(a.asked[number]) / a.all
}

// jumps reports whether a node asks so much more or less in the last sample than before that it is no chance.
func (a *nodeAverage) jumps(seconds, sample float64) bool {
	if sample < surprising || a.all == 0 {
		return false
	}
	for number, rate := range a.last {
		before := a.part(number)
		difference := math.Abs(float64(rate)*seconds/sample - before)
		if difference > nodeFloor && difference > jumpSigmas*math.Hypot(sigma(before, sample), sigma(before, a.size())) {
			return true
		}
	}
	return false
}

// size is like average's.
func (a *nodeAverage) size() float64 {
	if a.squares == 0 {
		return 0
	}
	return a.all * a.all / a.squares
}

// parts returns each node's part of all connections, where those of its zone are known.
func (a *nodeAverage) parts(c *cluster, zones map[string]float64) []float64 {
	sums := make([]float64, len(c.zones))
	for number, asked := range a.asked {
		sums[c.zoneOf[number]] += float64(asked)
	}
	parts := make([]float64, len(c.nodes))
	for number, asked := range a.asked {
		if sum := sums[c.zoneOf[number]]; sum > 0 {
			parts[number] = zones[c.nodes[number].Zone] * float64(asked) / sum
		}
	}
	return parts
}

// busyNodes returns the parts of nodes that ask much more than their zones' means.
func busyNodes(c *cluster, parts []float64, zones map[string]float64, size float64) map[string]float64 {
	named := map[string]float64{}
	for number, part := range parts {
		node := c.nodes[number]
		mean := zones[node.Zone] / float64(c.zones[c.zoneOf[number]].nodes)
		if part > nodeFloor && part > busier*mean && part-mean > busySigmas*sigma(part, size) {
			named[node.Name] = part
		}
	}
	return named
}

// withNodes names the busy nodes in a decision, and decides about them. Said is what is published; nil: nothing.
func withNodes(d Decision, c *cluster, a *nodeAverage, said *Said) Decision {
	if d.Parts == nil {
		return d
	}
	size := a.size()
	parts := a.parts(c, d.Parts)
	d.Nodes = busyNodes(c, parts, d.Parts, size)
	if said == nil {
		return d
	}
	isOther := false
	before := said.each(c)
	for name := range zonesOf(d.Nodes, said.Nodes) {
		now, was := 0., said.Nodes[name] // of a node that is gone
		if number, exists := c.numberOf(name); exists {
			now, was = parts[number], before(number)
		}
		difference := math.Abs(now - was)
		if difference > floor && difference > nodeBand*was && difference > sayingSigmas*math.Sqrt2*sigma(now, size) {
			isOther = true
			d.Off = max(d.Off, ratio(now, was), ratio(was, now))
		}
	}
	switch {
	case !isOther: // what is said of them stays, for it was found out from more connections, perhaps
		d.Nodes = said.scaled(c, d.Parts)
	case d.Reason == AsBefore:
		d.Reason = Differs
	}
	return d
}

func ratio(one, other float64) float64 { return max(one, floor) / max(other, floor) }

// each returns each node's part in what is published: its own, or an equal part of what its zone's named nodes leave.
func (s *Said) each(c *cluster) func(number int) float64 {
	left, others := make([]float64, len(c.zones)), make([]float64, len(c.zones))
	for number, z := range c.zones {
		left[number], others[number] = s.Zones[z.name], float64(z.nodes)
	}
	for name, part := range s.Nodes {
		if number, exists := c.numberOf(name); exists {
			left[c.zoneOf[number]] -= part
			others[c.zoneOf[number]]--
		}
	}
	return func(number int) float64 {
		if part, isNamed := s.Nodes[c.nodes[number].Name]; isNamed {
			return part
		}
		return max(left[c.zoneOf[number]], 0) / max(others[c.zoneOf[number]], 1)
	}
}

// scaled returns the named nodes with their published parts of their zones, applied to the zones' new parts.
func (s *Said) scaled(c *cluster, zones map[string]float64) map[string]float64 {
	scaled := map[string]float64{}
	for name, part := range s.Nodes {
		if number, exists := c.numberOf(name); exists && s.Zones[c.nodes[number].Zone] > 0 {
			zone := c.nodes[number].Zone
			scaled[name] = part / s.Zones[zone] * zones[zone]
		}
	}
	return scaled
}
