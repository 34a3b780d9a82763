package reachability

import "time"

// controls are probes of nodes that nobody suspects, and of API servers if there are too few nodes.
type controls struct {
	lastReplies map[string]time.Time // when probes that had a reply were sent; those of API servers that are on no node under the empty name
	isRequested bool
	next        time.Time // when they may be sent again
	round       uint64    // a position among the candidates, as a fraction of 2^64
}

// golden is the golden ratio's fraction of 2^64. A walk in such steps is spread evenly over a list at any time: names in a
// row are often nodes of one rack or zone.
const golden = 0x9E3779B97F4A7C15

// controlsEvery is the least time between two rounds of control probes: many suspicions share them.
const controlsEvery = 100 * time.Millisecond

// record takes in the reply to a control probe.
func (c *controls) record(probe inFlight) {
	name := ""
	if probe.node != nil {
		name = probe.node.name
	}
	if c.lastReplies[name].Before(probe.sentAt) {
		c.lastReplies[name] = probe.sentAt
	}
}

// anyReplySince reports whether anybody except a given node has replied to a probe that was sent at a time or later.
func (c *controls) anyReplySince(name string, since time.Time) bool {
	for other, sentAt := range c.lastReplies {
		if other != name && !sentAt.Before(since) {
			return true
		}
	}
	return false
}

// probeControls probes some nodes, a few others each time: one of them may be dead, too. It does so during suspicions, and
// while this node is isolated. Nodes that are suspected or ejected are no controls, as long as there are others. Where
// there are too few, API servers are probed, too.
func (d *Detector) probeControls(now time.Time) {
	if !d.controls.isRequested && d.isolation == nil || now.Before(d.controls.next) {
		return
	}
	d.controls.isRequested, d.controls.next = false, now.Add(controlsEvery)
	if d.isolation != nil {
		d.controls.next = now.Add(ejectedEvery)
	}
	var others, suspects []*node
	for _, name := range d.names {
		switch n := d.nodes[name]; {
		case n.best() == NoReply || n.ejection != nil:
		case n.suspicion != nil:
			suspects = append(suspects, n)
		default:
			others = append(others, n)
		}
	}
	if len(others) < 2 && len(suspects) > 1 {
		others = append(others, suspects...)
	}
	for i := range min(controlsPerRound, len(others)) {
		d.controls.round += golden
		n := others[(d.controls.round>>32)*uint64(len(others))>>32]
		ports := n.ports()
		d.probe(now, n, ports[i%len(ports)], timeout, inFlight{isControl: true})
	}
	if len(others) < 3 {
		for _, server := range d.servers[:min(len(d.servers), controlsPerRound)] {
			d.send(now, server.addr, timeout, inFlight{node: server.node, port: apiServer, isControl: true})
		}
	}
}
