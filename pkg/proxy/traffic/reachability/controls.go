package reachability

import "time"

// controls are control probes: probes of nodes that are not suspected, and of API servers if there are too few nodes.
type controls struct {
	lastReplies map[string]time.Time // when the last probe with a reply was sent, by node; "" is an API server on no node
	isRequested bool
	nextRound   time.Time // when the next round may be sent
	position    uint64    // the position among the candidates where the next control is picked, as a fraction of 2^64
}

// golden is the fractional part of the golden ratio, times 2^64. Steps of this size spread evenly over a list after any
// number of steps. Neighbours in a sorted list of names are often nodes of one rack or zone.
const golden = 0x9E3779B97F4A7C15

// controlsEvery is the minimum time between two rounds of control probes: many suspicions share them.
const controlsEvery = 100 * time.Millisecond

// record records the reply to a control probe.
func (c *controls) record(probe pendingProbe) {
	name := ""
	if probe.node != nil {
		name = probe.node.name
	}
	if c.lastReplies[name].Before(probe.sentAt) {
		c.lastReplies[name] = probe.sentAt
	}
}

// anyReplySince reports whether any node other than the given one, or an API server, replied to a control probe that
// was sent at or after since.
func (c *controls) anyReplySince(name string, since time.Time) bool {
	for other, sentAt := range c.lastReplies {
		if other != name && !sentAt.Before(since) {
			return true
		}
	}
	return false
}

// probeControls sends control probes during suspicions and while this node is isolated. It picks other nodes each time,
// because a control node may have failed too. Suspected nodes are controls only if there are fewer than two others, and
// ejected nodes never. With fewer than three control nodes, it probes API servers too.
func (d *Detector) probeControls(now time.Time) {
	if !d.controls.isRequested && d.isolatedSince == nil || now.Before(d.controls.nextRound) {
		return
	}
	d.controls.isRequested, d.controls.nextRound = false, now.Add(controlsEvery)
	if d.isolatedSince != nil {
		d.controls.nextRound = now.Add(ejectedEvery)
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
		d.controls.position += golden
		n := others[(d.controls.position>>32)*uint64(len(others))>>32]
		ports := n.ports()
		d.probe(now, n, ports[i%len(ports)], timeout, pendingProbe{isControl: true})
	}
	if len(others) < 3 {
		for _, srv := range d.servers[:min(len(d.servers), controlsPerRound)] {
			d.send(now, srv.addr, timeout, pendingProbe{node: srv.node, port: apiServer, isControl: true})
		}
	}
}
