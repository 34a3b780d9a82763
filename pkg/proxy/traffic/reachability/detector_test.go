package reachability_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// addLoad makes two clients connect to all nodes.
func (s *simulation) addLoad(perSecond int) {
	for _, node := range s.nodes {
		s.addClient(node, "10.1.0.1", perSecond)
		s.addClient(node, "10.1.0.2", perSecond)
	}
}

func TestAFailedNodeIsEjected(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 150 * time.Millisecond} {
		for phase := range 20 {
			sim := newSlowSimulation(t, 3, disabledGuards{}, delay)
			sim.addLoad(33)
			sim.run(time.Second)
			failedAt := sim.now + time.Duration(phase)*25*time.Millisecond
			sim.nodes[0].up = except(failedAt, failedAt+20*time.Second)
			sim.run(10 * time.Second)
			at, isEjected := sim.ejected["n0"]
			if limit := 3200 * time.Millisecond; !isEjected || at-failedAt > limit {
				t.Errorf("delay %v, phase %d: ejected %v after %v, want within %v", delay, phase, isEjected, at-failedAt, limit)
			}
			if len(sim.ejections) != 1 {
				t.Errorf("delay %v, phase %d: ejections %v, want one", delay, phase, sim.ejections)
			}
			sim.run(15 * time.Second)
			if back := sim.restored["n0"] - failedAt - 20*time.Second; back < 0 || back > 1200*time.Millisecond {
				t.Errorf("delay %v, phase %d: restored after %v, want within 1.2 s", delay, phase, back)
			}
		}
	}
}

// noEjectionCase is a case in which no node fails for good, or no observation could prove it.
type noEjectionCase struct {
	name    string
	nodes   int
	prepare func(w *simulation)
	// needs is the guard without which the case ends in an ejection.
	needs *disabledGuards
}

var noEjectionCases = []noEjectionCase{
	{name: "a policy denies a client", nodes: 3, prepare: func(w *simulation) { w.addClient(w.nodes[0], "10.1.0.9", 20).denied = true }},
	{name: "a tenant's unresponsive endpoint on the node", nodes: 3, prepare: func(w *simulation) {
		w.addClient(w.nodes[0], "10.1.0.9", 400).denied = true
	}},
	{name: "one node down for 1.5 s", nodes: 3, prepare: func(w *simulation) {
		w.nodes[0].up = except(w.now+time.Second, w.now+2500*time.Millisecond)
	}},
	{name: "delay and loss", nodes: 4, prepare: func(w *simulation) {
		for _, node := range w.nodes[:2] {
			node.delay, node.loss = 800*time.Millisecond, 0.2
		}
	}},
	{
		name: "a node that never replied to a probe", nodes: 4,
		prepare: func(w *simulation) {
			w.nodes = append(w.nodes, newMachine("closed", time.Millisecond, netip.MustParseAddr("192.0.2.99")))
			w.nodes[4].drops = dropFrom(0, closedPort, healthPort, kubeletPort)
			w.setTargets()
			w.addClient(w.nodes[4], "10.1.0.9", 1).denied = true
		},
	},
	{
		name: "this node's own network is down for 5 s", nodes: 3, needs: &disabledGuards{controls: true},
		prepare: func(w *simulation) { w.networkUp = except(w.now+time.Second, w.now+6*time.Second) },
	},
	{
		name: "this node's own network is down for good", nodes: 30, needs: &disabledGuards{controls: true},
		prepare: func(w *simulation) { w.networkUp = until(w.now + time.Second) },
	},
	{
		// ufw enable: a denied client starts the suspicion.
		name: "a firewall closes all ports of the node at once, and pods continue", nodes: 3,
		needs: &disabledGuards{replied: true},
		prepare: func(w *simulation) {
			w.nodes[0].drops = dropFrom(w.now+time.Second, closedPort, healthPort, kubeletPort)
			w.addClient(w.nodes[0], "10.1.0.9", 5).denied = true
		},
	},
	{
		// Some suspicions see only one client's connections before the timeout expires.
		name: "a firewall closes all ports of the node at once, and pods are seldom used", nodes: 3,
		prepare: func(w *simulation) {
			w.loads = nil
			w.nodes[0].drops = dropFrom(w.now+time.Second, closedPort, healthPort, kubeletPort)
			w.addClient(w.nodes[0], "10.1.0.9", 5).denied = true
			w.addClient(w.nodes[0], "10.1.0.1", 2)
			w.addClient(w.nodes[0], "10.1.0.2", 1).every = 1500 * time.Millisecond
		},
	},
	{
		name: "a firewall closes the proxy's port later", nodes: 3, prepare: func(w *simulation) {
			w.nodes[0].drops = dropFrom(w.now+time.Second, healthPort)
			w.addClient(w.nodes[0], "10.1.0.9", 5).denied = true
		},
	},
	{
		name: "a firewall closes all ports but the kubelet's later", nodes: 3, prepare: func(w *simulation) {
			w.nodes[0].drops = dropFrom(w.now+time.Second, closedPort, healthPort)
			w.loads = nil
			w.addClient(w.nodes[0], "10.1.0.9", 5).denied, w.loads[0].to = true, w.now+1400*time.Millisecond
		},
	},
	{
		name: "pods fill the accept queue of the proxy's port, and one of them does not reply", nodes: 3, prepare: func(w *simulation) {
			w.nodes[0].drops = func(port uint16, at time.Duration) bool {
				return port == healthPort && at%(3*time.Second) > 50*time.Millisecond
			}
			w.addClient(w.nodes[0], "10.1.0.9", 20).denied = true
		},
	},
}

func (s noEjectionCase) run(t *testing.T, disabled disabledGuards) *simulation {
	t.Helper()
	sim := newSimulation(t, s.nodes, disabled)
	sim.addLoad(10)
	s.prepare(sim)
	sim.run(time.Minute)
	return sim
}

func TestNoNodeThatRepliesIsEjected(t *testing.T) {
	for _, test := range noEjectionCases {
		t.Run(test.name, func(t *testing.T) {
			sim := test.run(t, disabledGuards{})
			if len(sim.ejections) > 0 {
				t.Errorf("ejected %v", sim.ejections)
			}
			for name, probes := range sim.probesByNode { // one suspicion every two seconds, and as a control for two others
				if probes > 30*5+2*30*2*4 {
					t.Errorf("%s was probed %d times in a minute, want at most 630", name, probes)
				}
			}
			if sim.probesByPort[kubeletPort] > test.nodes {
				t.Errorf("kubelets were probed %d times in a minute", sim.probesByPort[kubeletPort])
			}
			t.Logf("suspicions: %v, probes: %v", sim.outcomes, sim.probesByNode)
		})
	}
}

func TestEachGuardIsNeeded(t *testing.T) {
	for _, test := range noEjectionCases {
		if test.needs == nil {
			continue
		}
		t.Run(fmt.Sprintf("%s, %+v", test.name, *test.needs), func(t *testing.T) {
			if sim := test.run(t, *test.needs); len(sim.ejections) == 0 {
				t.Error("no ejection without the guard: this case does not show that it is needed")
			}
		})
	}
}

func TestManyNodesFailAtOnce(t *testing.T) {
	dead := func(sim *simulation, count int, isDead func(i int) bool) {
		sim.addLoad(10)
		sim.run(time.Second)
		for i := range count {
			if isDead(i) {
				sim.nodes[i].up = until(sim.now)
			}
		}
		sim.run(5 * time.Second)
		for i := range count {
			if _, isEjected := sim.ejected[sim.nodes[i].name]; isEjected != isDead(i) {
				t.Errorf("of %d: %s is ejected: %v, failed: %v", count, sim.nodes[i].name, isEjected, isDead(i))
			}
		}
	}
	dead(newSimulation(t, 30, disabledGuards{}), 30, func(i int) bool { return i < 10 })
	dead(newSimulation(t, 30, disabledGuards{}), 30, func(i int) bool { return i%3 != 0 }) // two of three zones
	dead(newSimulation(t, 200, disabledGuards{}), 200, func(i int) bool { return i%2 == 0 })
}

func TestAnIsolatedNodeEjectsNoNode(t *testing.T) {
	sim := newSimulation(t, 30, disabledGuards{})
	sim.addLoad(10)
	began := sim.now + time.Second
	sim.networkUp = except(began, began+30*time.Second)
	sim.run(20 * time.Second)
	if len(sim.ejections) > 0 || sim.isolations != 1 {
		t.Errorf("ejections %v, isolated %d times, want none and once", sim.ejections, sim.isolations)
	}
	sim.run(time.Minute)
	if len(sim.ejections) > 0 || sim.isolations != 1 || sim.detector.Status().IsolatedSince != nil {
		t.Errorf("after the network is up again: ejections %v, isolated %d times, since %v", sim.ejections, sim.isolations,
			sim.detector.Status().IsolatedSince)
	}
}

func TestOneOtherNodeNeedsTheAPIServer(t *testing.T) {
	for _, hasServer := range []bool{false, true} {
		sim := newSimulation(t, 1, disabledGuards{})
		if hasServer {
			sim.server = newMachine("api", time.Millisecond, netip.MustParseAddr("198.51.100.1"))
			sim.setTargets()
		}
		sim.addLoad(10)
		sim.nodes[0].up = until(sim.now + time.Second)
		sim.run(5 * time.Second)
		if _, isEjected := sim.ejected["n0"]; isEjected != hasServer {
			t.Errorf("with an API server %v: ejected %v", hasServer, isEjected)
		}
		if sim.detector.Status().HasNoControl == hasServer {
			t.Errorf("with an API server %v: HasNoControl has the same value, want the opposite", hasServer)
		}
	}
}

func TestARebootingNodeIsNotRestoredByItsFirstReset(t *testing.T) {
	sim := newSimulation(t, 4, disabledGuards{})
	sim.addLoad(10)
	failedAt := sim.now + time.Second
	booted, serves := failedAt+20*time.Second, failedAt+50*time.Second
	sim.nodes[0].up = except(failedAt, booted)
	sim.nodes[0].accepts = func(at time.Duration) bool { return at < booted || at >= serves }
	sim.run(time.Minute)
	if back := sim.restored["n0"]; back < serves || back > serves+1200*time.Millisecond {
		t.Errorf("restored after %v, want when it accepts connections, after %v", back-failedAt, serves-failedAt)
	}
	// A node that only resets is restored, too, after a minute.
	sim.nodes[0].up, sim.nodes[0].accepts = except(sim.now, sim.now+10*time.Second), never
	failedAt = sim.now
	sim.run(2 * time.Minute)
	if back := sim.restored["n0"] - failedAt - 10*time.Second; back < time.Minute || back > 64*time.Second {
		t.Errorf("restored after %v of resets, want after a minute", back)
	}
}

func TestAFlappingNodeStaysEjected(t *testing.T) {
	sim := newSimulation(t, 4, disabledGuards{})
	sim.addLoad(20)
	begin := sim.now
	sim.nodes[0].up = func(at time.Duration) bool { return at < begin || int((at-begin)/(5*time.Second))%2 == 1 }
	sim.run(2 * time.Minute)
	changes := 2*len(sim.ejections) - len(sim.ejected)
	if changes > 5 {
		t.Errorf("%d changes in two minutes, want at most 5", changes)
	}
	sim.nodes[0].up = always
	sim.run(70 * time.Second)
	if len(sim.ejected) > 0 {
		t.Errorf("after 70 s without a failure these are still ejected: %v", sim.ejected)
	}
}

// The first reply ends each suspicion. The closed port is probed first, so no process on the node is involved.
func TestADeniedClientCostsAProbeInTwoSeconds(t *testing.T) {
	sim := newSimulation(t, 3, disabledGuards{})
	sim.addClient(sim.nodes[0], "10.1.0.9", 1).denied = true
	sim.run(10 * time.Minute)
	if probes := sim.probesByPort[closedPort]; probes < 250 || probes > 300 || sim.probesByNode["n0"] != probes || len(sim.probesByPort) != 1 {
		t.Errorf("probes by port %v, by node %v", sim.probesByPort, sim.probesByNode)
	}
}

func TestADeniedClientHidesNoFailure(t *testing.T) {
	sim := newSimulation(t, 3, disabledGuards{})
	sim.addLoad(20)
	sim.addClient(sim.nodes[0], "10.1.0.9", 20).denied = true
	sim.run(20 * time.Second)
	failedAt := sim.now
	sim.nodes[0].up = until(failedAt)
	sim.run(5 * time.Second)
	if at, isEjected := sim.ejected["n0"]; !isEjected || at-failedAt > 3200*time.Millisecond {
		t.Errorf("ejected %v after %v, want within 3.2 s", isEjected, at-failedAt)
	}
}

func TestAQuietHour(t *testing.T) {
	sim := newSimulation(t, 100, disabledGuards{})
	sim.run(time.Hour)
	total := 0
	for name, probes := range sim.probesByNode {
		if total += probes; probes != 2 {
			t.Errorf("%s was probed %d times, want once at each port", name, probes)
		}
	}
	if total != 200 {
		t.Errorf("%d probes, want 200", total)
	}
}

func TestARemovedNodeIsRestored(t *testing.T) {
	for _, readdressed := range []bool{false, true} {
		sim := newSimulation(t, 4, disabledGuards{})
		sim.addLoad(10)
		sim.nodes[0].up = until(sim.now)
		sim.run(5 * time.Second)
		if len(sim.ejected) != 1 {
			t.Fatalf("ejected: %v", sim.ejected)
		}
		if readdressed {
			sim.nodes[0].addr = netip.MustParseAddr("192.0.2.77")
		} else {
			sim.nodes, sim.loads = sim.nodes[1:], sim.loads[2:]
		}
		sim.setTargets()
		sim.run(20 * time.Millisecond)
		if len(sim.ejected) != 0 {
			t.Errorf("readdressed %v: ejected: %v", readdressed, sim.ejected)
		}
		if readdressed && sim.detector.Status().WithoutBaseline != 1 {
			t.Error("the baseline of the former address is used for the new one")
		}
	}
}

// Six of ten SYNs to an endpoint were dropped for a while. That does not delay the ejection when the node fails later.
func TestAnOverloadedNodeThatFails(t *testing.T) {
	sim := newSimulation(t, 3, disabledGuards{})
	sim.addLoad(10)
	for client := range 10 {
		sim.addClient(sim.nodes[0], fmt.Sprintf("10.1.1.%d", client), 6).denied = true
		sim.addClient(sim.nodes[0], fmt.Sprintf("10.1.1.%d", client), 4)
	}
	sim.run(72 * time.Second)
	if len(sim.ejections) > 0 {
		t.Fatalf("ejected %v", sim.ejections)
	}
	failedAt := sim.now
	sim.nodes[0].up = until(failedAt)
	sim.run(5 * time.Second)
	if at, isEjected := sim.ejected["n0"]; !isEjected || at-failedAt > 3500*time.Millisecond {
		t.Errorf("ejected %v after %v, want within 3.5 s", isEjected, at-failedAt)
	}
}

// A node whose proxy's port is closed is restored by resets from another port, after a minute; or by new connections of
// two clients to its endpoints that have a reply.
func TestWhatRestoresANode(t *testing.T) {
	for name, test := range map[string]struct {
		shut    []uint16
		clients []string
		back    [2]time.Duration
	}{
		"resets": {[]uint16{healthPort}, nil, [2]time.Duration{time.Minute, 64 * time.Second}},
		"connections of two clients": {
			[]uint16{healthPort, closedPort, kubeletPort}, []string{"10.1.0.1", "10.1.0.2"}, [2]time.Duration{0, 12 * time.Second},
		},
		"one client proves nothing": {[]uint16{healthPort, closedPort, kubeletPort}, []string{"10.1.0.1"}, [2]time.Duration{-1, -1}},
		"no client connects":        {[]uint16{healthPort, closedPort, kubeletPort}, nil, [2]time.Duration{-1, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			sim := newSimulation(t, 3, disabledGuards{})
			sim.addLoad(10)
			failedAt := sim.now
			up := failedAt + 10*time.Second
			sim.nodes[0].up, sim.nodes[0].drops = except(failedAt, up), dropFrom(failedAt, test.shut...)
			sim.run(9 * time.Second)
			if _, isEjected := sim.ejected["n0"]; !isEjected {
				t.Fatal("n0 is not ejected")
			}
			sim.loads, sim.flows = nil, nil
			sim.run(3 * time.Second)
			for _, client := range test.clients {
				sim.addClient(sim.nodes[0], client, 1)
			}
			sim.run(3 * time.Minute)
			back, isBack := sim.restored["n0"]
			if back -= up; isBack != (test.back[1] > 0) || isBack && (back < test.back[0] || back > test.back[1]) {
				t.Errorf("restored %v after %v, want after %v", isBack, back, test.back)
			}
		})
	}
}

// A pod replies to the client in the name of an endpoint on a failed node.
func TestOneClientIsNoProof(t *testing.T) {
	for clients := 1; clients <= 2; clients++ {
		sim := newSimulation(t, 3, disabledGuards{})
		sim.addLoad(10)
		for i := range clients {
			sim.addClient(sim.nodes[0], fmt.Sprintf("10.1.2.%d", i), 10).forged = true
		}
		sim.run(time.Second)
		sim.nodes[0].up = until(sim.now)
		sim.run(5 * time.Second)
		if _, isEjected := sim.ejected["n0"]; isEjected != (clients == 1) {
			t.Errorf("%d clients with a forged reply: ejected %v", clients, isEjected)
		}
	}
}

// A node that neighbour discovery does not find is suspected at once.
func TestANodeWithoutALinkLayerAddressIsSuspected(t *testing.T) {
	sim := newSimulation(t, 3, disabledGuards{})
	sim.nodes[0].up = until(sim.now)
	sim.detector.ReportUnreplied([]string{"n0", "absent"})
	sim.step()
	sim.run(1200 * time.Millisecond)
	if at, isEjected := sim.ejected["n0"]; !isEjected || len(sim.ejections) != 1 {
		t.Errorf("ejected %v after %v: %v", isEjected, at, sim.ejections)
	}
}
