package reachability_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// 300 of 600 nodes fail: as many are suspected at a time as the limit on probes permits, those with the most
// connections first.
func TestThreeHundredNodesFailAtOnce(t *testing.T) {
	w := newWorld(t, 600, without{})
	w.addLoad(2)
	w.run(2 * time.Second)
	died := w.now
	for _, node := range w.nodes[:300] {
		node.up = until(died)
	}
	w.dials, w.dialsTo = map[string]int{}, map[uint16]int{}
	w.run(10 * time.Second)
	if sum := w.dialsTo[closedPort] + w.dialsTo[healthPort] + w.dialsTo[kubeletPort]; sum > 10*256+1000 { // plus control probes
		t.Errorf("%d probes in ten seconds", sum)
	}
	var last time.Duration
	for i, node := range w.nodes {
		at, isEjected := w.ejected[node.name]
		if isEjected != (i < 300) {
			t.Errorf("%s is ejected: %v", node.name, isEjected)
		}
		last = max(last, at-died)
	}
	if len(w.ejections) != 300 || last > 9*time.Second {
		t.Errorf("%d ejections, the last after %v", len(w.ejections), last)
	}
	t.Log("the last is ejected after", last, w.outcomes, w.dialsTo, w.isolations, w.now, died)
}

// A node is ejected only if it did not reply just before, and no other node is ejected.
func TestAnHourOfFlapping(t *testing.T) {
	w := newWorld(t, 4, without{})
	w.addLoad(3)
	random, isUp, next := rand.New(rand.NewPCG(35, 1)), true, w.now
	var upSince time.Duration
	w.nodes[0].up = func(time.Duration) bool { return isUp }
	changes := 0
	for end := w.now + time.Hour; w.now < end; w.run(10 * time.Millisecond) {
		if w.now >= next {
			isUp, next = !isUp, w.now+time.Duration(random.IntN(20_000))*time.Millisecond
			upSince = w.now
		}
		for _, name := range w.ejections {
			if name != "n0" {
				t.Fatalf("%s is ejected", name)
			}
			if isUp && w.now-upSince > 100*time.Millisecond {
				t.Fatalf("ejected %v after it was up again", w.now-upSince)
			}
		}
		changes, w.ejections = changes+len(w.ejections), nil
	}
	if changes == 0 || changes > 30 {
		t.Errorf("%d ejections in an hour, want some and at most 30", changes)
	}
	isUp, w.nodes[0].up = true, always
	w.run(80 * time.Second)
	if len(w.ejected) > 0 {
		t.Errorf("after 80 s without a failure these are still ejected: %v", w.ejected)
	}
	t.Log(changes, "ejections")
}

// addTenantLoad adds connections of a tenant, from a new client, to endpoints of the tenant's own that never reply. The
// tenant's EndpointSlices name all nodes, and one that does not exist.
func (w *world) tenant(every time.Duration, from int) {
	for i, node := range w.nodes {
		l := w.dial(node, fmt.Sprintf("10.9.%d.%d", from>>8&255, from&255), 1)
		l.every, l.denied, l.to = every, true, w.now+time.Second
		l.next += time.Duration(i) * time.Millisecond
	}
	w.detector.ReportUnreplied([]string{"absent"})
}

// A malicious tenant starts suspicions endlessly, but causes no ejection of a node that replies, and does not delay
// that of one that failed.
func TestAMaliciousTenant(t *testing.T) {
	w := newWorld(t, 6, without{})
	w.addLoad(10)
	for second := range 60 {
		w.tenant(200*time.Millisecond, second)
		w.run(time.Second)
	}
	if len(w.ejections) > 0 {
		t.Fatalf("ejected %v", w.ejections)
	}
	for name, dials := range w.dials {
		if dials > 1000 { // as a suspect once every two seconds, and as a control
			t.Errorf("%s was probed %d times in a minute, want at most 1000", name, dials)
		}
	}
	t.Log(w.dials, w.outcomes)
	died := w.now
	w.nodes[0].up = until(died)
	for second := range 5 {
		w.tenant(200*time.Millisecond, 1000+second)
		w.run(time.Second)
	}
	if at, isEjected := w.ejected["n0"]; !isEjected || at-died > 3500*time.Millisecond || len(w.ejections) != 1 {
		t.Errorf("ejected: %v, after %v; ejections %v", isEjected, at-died, w.ejections)
	}
}

// Machines may reply in place of a node, and routes may be asymmetric.
func TestIntermediariesCauseNoEjection(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"a gateway that resets connections to the nodes behind it": func(w *world) {
			w.nodes[0].accepts = never
			w.dial(w.nodes[0], "10.1.0.9", 20).denied = true
		},
		"a CNI that drops our probes from the beginning": func(w *world) {
			w.nodes = append(w.nodes, newMachine("dropping", time.Millisecond, netip.MustParseAddr("192.0.2.99")))
			w.nodes[6].drops = dropFrom(0, closedPort, healthPort, kubeletPort)
			w.setTargets()
			w.dial(w.nodes[6], "10.1.0.9", 20).denied = true
		},
		"a CNI that later drops our probes of all nodes": func(w *world) {
			moment := w.now + time.Second
			for _, node := range w.nodes {
				node.drops = dropFrom(moment, closedPort, healthPort, kubeletPort)
			}
			w.dial(w.nodes[0], "10.1.0.9", 20).denied = true
		},
		"replies of a zone over a lossy path": func(w *world) {
			for i, node := range w.nodes {
				if i%3 == 0 {
					node.loss, node.delay = 0.3, 400*time.Millisecond
				}
			}
		},
		"a link that is repeatedly down for a second": func(w *world) {
			w.ownUp = func(at time.Duration) bool { return at%(5*time.Second) >= time.Second }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 6, without{})
			w.addLoad(10)
			prepare(w)
			w.run(2 * time.Minute)
			if len(w.ejections) > 0 {
				t.Errorf("ejected %v", w.ejections)
			}
			t.Log(w.outcomes, w.dials)
		})
	}
}

// A node is unreachable for a moment, so that only the last probe of a suspicion gets a reply, and fails a little
// later.
func TestTheKubeletsReplyHidesNoFailure(t *testing.T) {
	for phase := range 12 {
		w := newWorld(t, 3, without{})
		w.addLoad(33)
		w.run(time.Second)
		away, back := w.now, w.now+time.Second+time.Duration(phase)*150*time.Millisecond
		died := w.now + 12*time.Second
		w.nodes[0].up = func(at time.Duration) bool { return at < away || at >= back && at < died }
		w.run(16 * time.Second)
		if at, isEjected := w.ejected["n0"]; !isEjected || at-died > 3500*time.Millisecond {
			t.Errorf("unreachable for %v: ejected %v, %v after its failure", back-away, isEjected, at-died)
		}
	}
}

// A firewall closes the other ports of a node, and a policy denies a client of its endpoints. The node is not ejected
// until it fails, and then within a minute.
func TestOnlyTheKubeletReplies(t *testing.T) {
	w := newWorld(t, 3, without{})
	w.nodes[0].drops = dropFrom(w.now, closedPort, healthPort)
	w.dial(w.nodes[0], "10.1.0.9", 5).denied = true
	w.dials, w.dialsTo = map[string]int{}, map[uint16]int{}
	w.run(5 * time.Minute)
	if len(w.ejections) > 0 || w.dialsTo[kubeletPort] > 6 {
		t.Errorf("ejected %v; %d probes of the kubelet in five minutes", w.ejections, w.dialsTo[kubeletPort])
	}
	w.nodes[0].up = never
	w.run(time.Minute + 5*time.Second)
	if len(w.ejections) == 0 {
		t.Error("n0 failed a minute ago and is not ejected")
	}
	w.nodes[0].up = always
	w.run(time.Minute + 5*time.Second)
	if _, isEjected := w.ejected["n0"]; isEjected {
		t.Error("the kubelet of n0 replies again, but n0 is not restored")
	}
}

// If the API server is on the only other node, there is no control.
func TestANodeIsNotEjectedBecauseItsOwnAPIServerReplies(t *testing.T) {
	w := newWorld(t, 1, without{})
	w.server = newMachine("api", time.Millisecond, w.nodes[0].addr)
	w.setTargets()
	w.run(3 * time.Second)
	w.nodes[0].drops = dropFrom(w.now, closedPort, healthPort, kubeletPort)
	w.dial(w.nodes[0], "10.1.0.9", 5).denied = true
	w.run(10 * time.Second)
	if len(w.ejections) > 0 || !w.detector.Status().HasNoControl {
		t.Errorf("ejected %v; HasNoControl: %v", w.ejections, w.detector.Status().HasNoControl)
	}
}

// 600 nodes have endpoints that never reply, and another node fails.
func TestUnresponsiveEndpointsHideNoFailure(t *testing.T) {
	w := newWorld(t, 601, without{})
	for _, node := range w.nodes[:600] {
		for _, client := range []string{"10.1.0.8", "10.1.0.9"} {
			silent := w.dial(node, client, 1)
			silent.every, silent.denied = 20*time.Second, true
		}
	}
	w.run(2 * time.Second)
	died := w.now
	w.nodes[600].up = until(died)
	w.dial(w.nodes[600], "10.1.0.1", 1).every = 100 * time.Second
	w.run(10 * time.Second)
	if _, isEjected := w.ejected["n600"]; !isEjected || len(w.ejections) > 1 {
		t.Errorf("ejected are %v", w.ejections)
	}
}

// If many nodes fail, connections are listed only a few times a second, and once every ten seconds for ejected nodes.
func TestOneListOfConnectionsServesAllNodes(t *testing.T) {
	w := newWorld(t, 600, without{})
	w.addLoad(1)
	w.run(2 * time.Second)
	for _, node := range w.nodes[:300] {
		node.up = never
	}
	w.run(20 * time.Second)
	lists := 0
	for range 2000 {
		w.run(10 * time.Millisecond)
		if len(w.listed) > 0 {
			lists++
		}
	}
	if len(w.ejections) != 300 || lists > 3 {
		t.Errorf("%d ejected; their connections are listed %d times in twenty seconds", len(w.ejections), lists)
	}
}

// Here the control nodes take longer to reply than the node that fails.
func TestSlowControls(t *testing.T) {
	w := newWorld(t, 4, without{})
	for _, node := range w.nodes[1:] {
		node.delay = 300 * time.Millisecond
	}
	w.addLoad(33)
	w.run(5 * time.Second)
	died := w.now
	w.nodes[0].up = until(died)
	w.run(5 * time.Second)
	if _, isEjected := w.ejected["n0"]; !isEjected || len(w.ejections) > 1 || w.isolations > 0 {
		t.Errorf("ejected are %v; isolated %d times", w.ejections, w.isolations)
	}
}
