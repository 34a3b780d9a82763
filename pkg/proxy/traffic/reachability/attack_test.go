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
	sim := newSimulation(t, 600, disabledGuards{})
	sim.addLoad(2)
	sim.run(2 * time.Second)
	failedAt := sim.now
	for _, node := range sim.nodes[:300] {
		node.up = until(failedAt)
	}
	sim.probesByNode, sim.probesByPort = map[string]int{}, map[uint16]int{}
	sim.run(10 * time.Second)
	if sum := sim.probesByPort[closedPort] + sim.probesByPort[healthPort] + sim.probesByPort[kubeletPort]; sum > 10*256+
		1000 { // plus control probes
		t.Errorf("%d probes in ten seconds", sum)
	}
	var last time.Duration
	for i, node := range sim.nodes {
		at, isEjected := sim.ejected[node.name]
		if isEjected != (i < 300) {
			t.Errorf("%s is ejected: %v", node.name, isEjected)
		}
		last = max(last, at-failedAt)
	}
	if len(sim.ejections) != 300 || last > 9*time.Second {
		t.Errorf("%d ejections, the last after %v", len(sim.ejections), last)
	}
	t.Log("the last is ejected after", last, sim.outcomes, sim.probesByPort, sim.isolations, sim.now, failedAt)
}

// A node is ejected only if it did not reply just before, and no other node is ejected.
func TestAnHourOfFlapping(t *testing.T) {
	sim := newSimulation(t, 4, disabledGuards{})
	sim.addLoad(3)
	random, isUp, next := rand.New(rand.NewPCG(35, 1)), true, sim.now
	var upSince time.Duration
	sim.nodes[0].up = func(time.Duration) bool { return isUp }
	changes := 0
	for end := sim.now + time.Hour; sim.now < end; sim.run(10 * time.Millisecond) {
		if sim.now >= next {
			isUp, next = !isUp, sim.now+time.Duration(random.IntN(20_000))*time.Millisecond
			upSince = sim.now
		}
		for _, name := range sim.ejections {
			if name != "n0" {
				t.Fatalf("%s is ejected", name)
			}
			if isUp && sim.now-upSince > 100*time.Millisecond {
				t.Fatalf("ejected %v after it was up again", sim.now-upSince)
			}
		}
		changes, sim.ejections = changes+len(sim.ejections), nil
	}
	if changes == 0 || changes > 30 {
		t.Errorf("%d ejections in an hour, want some and at most 30", changes)
	}
	isUp, sim.nodes[0].up = true, always
	sim.run(80 * time.Second)
	if len(sim.ejected) > 0 {
		t.Errorf("after 80 s without a failure these are still ejected: %v", sim.ejected)
	}
	t.Log(changes, "ejections")
}

// addTenantLoad adds connections of a tenant, from a new client, to endpoints of the tenant's own that never reply. The
// tenant's EndpointSlices name all nodes, and one that does not exist.
func (s *simulation) addTenantLoad(every time.Duration, client int) {
	for i, node := range s.nodes {
		l := s.addClient(node, fmt.Sprintf("10.9.%d.%d", client>>8&255, client&255), 1)
		l.every, l.denied, l.to = every, true, s.now+time.Second
		l.next += time.Duration(i) * time.Millisecond
	}
	s.detector.ReportUnreplied([]string{"absent"})
}

// A malicious tenant starts suspicions endlessly, but causes no ejection of a node that replies, and does not delay
// that of one that failed.
func TestAMaliciousTenant(t *testing.T) {
	sim := newSimulation(t, 6, disabledGuards{})
	sim.addLoad(10)
	for second := range 60 {
		sim.addTenantLoad(200*time.Millisecond, second)
		sim.run(time.Second)
	}
	if len(sim.ejections) > 0 {
		t.Fatalf("ejected %v", sim.ejections)
	}
	for name, probes := range sim.probesByNode {
		if probes > 1000 { // as a suspect once every two seconds, and as a control
			t.Errorf("%s was probed %d times in a minute, want at most 1000", name, probes)
		}
	}
	t.Log(sim.probesByNode, sim.outcomes)
	failedAt := sim.now
	sim.nodes[0].up = until(failedAt)
	for second := range 5 {
		sim.addTenantLoad(200*time.Millisecond, 1000+second)
		sim.run(time.Second)
	}
	if at, isEjected := sim.ejected["n0"]; !isEjected || at-failedAt > 3500*time.Millisecond || len(sim.ejections) != 1 {
		t.Errorf("ejected: %v, after %v; ejections %v", isEjected, at-failedAt, sim.ejections)
	}
}

// Machines may reply in place of a node, and routes may be asymmetric.
func TestIntermediariesCauseNoEjection(t *testing.T) {
	for name, prepare := range map[string]func(sim *simulation){
		"a gateway that resets connections to the nodes behind it": func(sim *simulation) {
			sim.nodes[0].accepts = never
			sim.addClient(sim.nodes[0], "10.1.0.9", 20).denied = true
		},
		"a CNI that drops our probes from the beginning": func(sim *simulation) {
			sim.nodes = append(sim.nodes, newMachine("dropping", time.Millisecond, netip.MustParseAddr("192.0.2.99")))
			sim.nodes[6].drops = dropFrom(0, closedPort, healthPort, kubeletPort)
			sim.setTargets()
			sim.addClient(sim.nodes[6], "10.1.0.9", 20).denied = true
		},
		"a CNI that later drops our probes of all nodes": func(sim *simulation) {
			moment := sim.now + time.Second
			for _, node := range sim.nodes {
				node.drops = dropFrom(moment, closedPort, healthPort, kubeletPort)
			}
			sim.addClient(sim.nodes[0], "10.1.0.9", 20).denied = true
		},
		"replies of a zone over a lossy path": func(sim *simulation) {
			for i, node := range sim.nodes {
				if i%3 == 0 {
					node.loss, node.delay = 0.3, 400*time.Millisecond
				}
			}
		},
		"a link that is repeatedly down for a second": func(sim *simulation) {
			sim.networkUp = func(at time.Duration) bool { return at%(5*time.Second) >= time.Second }
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim := newSimulation(t, 6, disabledGuards{})
			sim.addLoad(10)
			prepare(sim)
			sim.run(2 * time.Minute)
			if len(sim.ejections) > 0 {
				t.Errorf("ejected %v", sim.ejections)
			}
			t.Log(sim.outcomes, sim.probesByNode)
		})
	}
}

// A node is unreachable for a moment, so that only the last probe of a suspicion gets a reply, and fails a little
// later.
func TestTheKubeletsReplyHidesNoFailure(t *testing.T) {
	for phase := range 12 {
		sim := newSimulation(t, 3, disabledGuards{})
		sim.addLoad(33)
		sim.run(time.Second)
		away, back := sim.now, sim.now+time.Second+time.Duration(phase)*150*time.Millisecond
		failedAt := sim.now + 12*time.Second
		sim.nodes[0].up = func(at time.Duration) bool { return at < away || at >= back && at < failedAt }
		sim.run(16 * time.Second)
		if at, isEjected := sim.ejected["n0"]; !isEjected || at-failedAt > 3500*time.Millisecond {
			t.Errorf("unreachable for %v: ejected %v, %v after its failure", back-away, isEjected, at-failedAt)
		}
	}
}

// A firewall closes the other ports of a node, and a policy denies a client of its endpoints. The node is not ejected
// until it fails, and then within a minute.
func TestOnlyTheKubeletReplies(t *testing.T) {
	sim := newSimulation(t, 3, disabledGuards{})
	sim.nodes[0].drops = dropFrom(sim.now, closedPort, healthPort)
	sim.addClient(sim.nodes[0], "10.1.0.9", 5).denied = true
	sim.probesByNode, sim.probesByPort = map[string]int{}, map[uint16]int{}
	sim.run(5 * time.Minute)
	if len(sim.ejections) > 0 || sim.probesByPort[kubeletPort] > 6 {
		t.Errorf("ejected %v; %d probes of the kubelet in five minutes", sim.ejections, sim.probesByPort[kubeletPort])
	}
	sim.nodes[0].up = never
	sim.run(time.Minute + 5*time.Second)
	if len(sim.ejections) == 0 {
		t.Error("n0 failed a minute ago and is not ejected")
	}
	sim.nodes[0].up = always
	sim.run(time.Minute + 5*time.Second)
	if _, isEjected := sim.ejected["n0"]; isEjected {
		t.Error("the kubelet of n0 replies again, but n0 is not restored")
	}
}

// If the API server is on the only other node, there is no control.
func TestANodeIsNotEjectedBecauseItsOwnAPIServerReplies(t *testing.T) {
	sim := newSimulation(t, 1, disabledGuards{})
	sim.server = newMachine("api", time.Millisecond, sim.nodes[0].addr)
	sim.setTargets()
	sim.run(3 * time.Second)
	sim.nodes[0].drops = dropFrom(sim.now, closedPort, healthPort, kubeletPort)
	sim.addClient(sim.nodes[0], "10.1.0.9", 5).denied = true
	sim.run(10 * time.Second)
	if len(sim.ejections) > 0 || !sim.detector.Status().HasNoControl {
		t.Errorf("ejected %v; HasNoControl: %v", sim.ejections, sim.detector.Status().HasNoControl)
	}
}

// 600 nodes have endpoints that never reply, and another node fails.
func TestUnresponsiveEndpointsHideNoFailure(t *testing.T) {
	sim := newSimulation(t, 601, disabledGuards{})
	for _, node := range sim.nodes[:600] {
		for _, client := range []string{"10.1.0.8", "10.1.0.9"} {
			stream := sim.addClient(node, client, 1)
			stream.every, stream.denied = 20*time.Second, true
		}
	}
	sim.run(2 * time.Second)
	failedAt := sim.now
	sim.nodes[600].up = until(failedAt)
	sim.addClient(sim.nodes[600], "10.1.0.1", 1).every = 100 * time.Second
	sim.run(10 * time.Second)
	if _, isEjected := sim.ejected["n600"]; !isEjected || len(sim.ejections) > 1 {
		t.Errorf("ejected are %v", sim.ejections)
	}
}

// If many nodes fail, connections are listed only a few times a second, and once every ten seconds for ejected nodes.
func TestOneListOfConnectionsServesAllNodes(t *testing.T) {
	sim := newSimulation(t, 600, disabledGuards{})
	sim.addLoad(1)
	sim.run(2 * time.Second)
	for _, node := range sim.nodes[:300] {
		node.up = never
	}
	sim.run(20 * time.Second)
	lists := 0
	for range 2000 {
		sim.run(10 * time.Millisecond)
		if len(sim.listed) > 0 {
			lists++
		}
	}
	if len(sim.ejections) != 300 || lists > 3 {
		t.Errorf("%d ejected; their connections are listed %d times in twenty seconds", len(sim.ejections), lists)
	}
}

// Here the control nodes take longer to reply than the node that fails.
func TestSlowControls(t *testing.T) {
	sim := newSimulation(t, 4, disabledGuards{})
	for _, node := range sim.nodes[1:] {
		node.delay = 300 * time.Millisecond
	}
	sim.addLoad(33)
	sim.run(5 * time.Second)
	failedAt := sim.now
	sim.nodes[0].up = until(failedAt)
	sim.run(5 * time.Second)
	if _, isEjected := sim.ejected["n0"]; !isEjected || len(sim.ejections) > 1 || sim.isolations > 0 {
		t.Errorf("ejected are %v; isolated %d times", sim.ejections, sim.isolations)
	}
}
