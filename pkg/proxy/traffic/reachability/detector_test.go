package reachability_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// addLoad makes two clients connect to all nodes.
func (w *world) addLoad(perSecond int) {
	for _, node := range w.nodes {
		w.dial(node, "10.1.0.1", perSecond)
		w.dial(node, "10.1.0.2", perSecond)
	}
}

func TestAFailedNodeIsEjected(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 150 * time.Millisecond} {
		for phase := range 20 {
			w := newSlowWorld(t, 3, without{}, delay)
			w.addLoad(33)
			w.run(time.Second)
			died := w.now + time.Duration(phase)*25*time.Millisecond
			w.nodes[0].up = except(died, died+20*time.Second)
			w.run(10 * time.Second)
			at, isEjected := w.ejected["n0"]
			if limit := 3200 * time.Millisecond; !isEjected || at-died > limit {
				t.Errorf("delay %v, phase %d: ejected %v after %v, want within %v", delay, phase, isEjected, at-died, limit)
			}
			if len(w.ejections) != 1 {
				t.Errorf("delay %v, phase %d: ejections %v, want one", delay, phase, w.ejections)
			}
			w.run(15 * time.Second)
			if back := w.restored["n0"] - died - 20*time.Second; back < 0 || back > 1200*time.Millisecond {
				t.Errorf("delay %v, phase %d: restored after %v, want within 1.2 s", delay, phase, back)
			}
		}
	}
}

// noEjectionCase is a case in which no node fails for good, or no observation could prove it.
type noEjectionScene struct {
	name    string
	nodes   int
	prepare func(w *world)
	// needs is the guard without which the case ends in an ejection.
	needs *without
}

var noEjectionScenes = []noEjectionScene{
	{name: "a policy denies a client", nodes: 3, prepare: func(w *world) { w.dial(w.nodes[0], "10.1.0.9", 20).denied = true }},
	{name: "a tenant's unresponsive endpoint on the node", nodes: 3, prepare: func(w *world) {
		w.dial(w.nodes[0], "10.1.0.9", 400).denied = true
	}},
	{name: "one node down for 1.5 s", nodes: 3, prepare: func(w *world) {
		w.nodes[0].up = except(w.now+time.Second, w.now+2500*time.Millisecond)
	}},
	{name: "delay and loss", nodes: 4, prepare: func(w *world) {
		for _, node := range w.nodes[:2] {
			node.delay, node.loss = 800*time.Millisecond, 0.2
		}
	}},
	{
		name: "a node that never replied to a probe", nodes: 4,
		prepare: func(w *world) {
			w.nodes = append(w.nodes, newMachine("closed", time.Millisecond, netip.MustParseAddr("192.0.2.99")))
			w.nodes[4].drops = dropFrom(0, closedPort, healthPort, kubeletPort)
			w.setTargets()
			w.dial(w.nodes[4], "10.1.0.9", 1).denied = true
		},
	},
	{
		name: "this node's own network is down for 5 s", nodes: 3, needs: &without{controls: true},
		prepare: func(w *world) { w.ownUp = except(w.now+time.Second, w.now+6*time.Second) },
	},
	{
		name: "this node's own network is down for good", nodes: 30, needs: &without{controls: true},
		prepare: func(w *world) { w.ownUp = until(w.now + time.Second) },
	},
	{
		// ufw enable: a denied client starts the suspicion.
		name: "a firewall closes all ports of the node at once, and pods continue", nodes: 3,
		needs: &without{replied: true},
		prepare: func(w *world) {
			w.nodes[0].drops = dropFrom(w.now+time.Second, closedPort, healthPort, kubeletPort)
			w.dial(w.nodes[0], "10.1.0.9", 5).denied = true
		},
	},
	{
		name: "a firewall closes the proxy's port later", nodes: 3, prepare: func(w *world) {
			w.nodes[0].drops = dropFrom(w.now+time.Second, healthPort)
			w.dial(w.nodes[0], "10.1.0.9", 5).denied = true
		},
	},
	{
		name: "a firewall closes all ports but the kubelet's later", nodes: 3, prepare: func(w *world) {
			w.nodes[0].drops = dropFrom(w.now+time.Second, closedPort, healthPort)
			w.loads = nil
			w.dial(w.nodes[0], "10.1.0.9", 5).denied, w.loads[0].to = true, w.now+1400*time.Millisecond
		},
	},
	{
		name: "pods fill the accept queue of the proxy's port, and one of them does not reply", nodes: 3, prepare: func(w *world) {
			w.nodes[0].drops = func(port uint16, at time.Duration) bool {
				return port == healthPort && at%(3*time.Second) > 50*time.Millisecond
			}
			w.dial(w.nodes[0], "10.1.0.9", 20).denied = true
		},
	},
}

func (s noEjectionScene) run(t *testing.T, without without) *world {
	t.Helper()
	w := newWorld(t, s.nodes, without)
	w.addLoad(10)
	s.prepare(w)
	w.run(time.Minute)
	return w
}

func TestNoNodeThatRepliesIsEjected(t *testing.T) {
	for _, scene := range noEjectionScenes {
		t.Run(scene.name, func(t *testing.T) {
			w := scene.run(t, without{})
			if len(w.ejections) > 0 {
				t.Errorf("ejected %v", w.ejections)
			}
			for name, dials := range w.dials { // one suspicion every two seconds, and as a control for two others
				if dials > 30*5+2*30*2*4 {
					t.Errorf("%s was probed %d times in a minute, want at most 630", name, dials)
				}
			}
			if w.dialsTo[kubeletPort] > scene.nodes {
				t.Errorf("kubelets were probed %d times in a minute", w.dialsTo[kubeletPort])
			}
			t.Logf("suspicions: %v, probes: %v", w.outcomes, w.dials)
		})
	}
}

func TestEachGuardIsNeeded(t *testing.T) {
	for _, scene := range noEjectionScenes {
		if scene.needs == nil {
			continue
		}
		t.Run(fmt.Sprintf("%s, %+v", scene.name, *scene.needs), func(t *testing.T) {
			if w := scene.run(t, *scene.needs); len(w.ejections) == 0 {
				t.Error("no ejection without the guard: this case does not show that it is needed")
			}
		})
	}
}

func TestManyNodesFailAtOnce(t *testing.T) {
	dead := func(w *world, count int, isDead func(i int) bool) {
		w.addLoad(10)
		w.run(time.Second)
		for i := range count {
			if isDead(i) {
				w.nodes[i].up = until(w.now)
			}
		}
		w.run(5 * time.Second)
		for i := range count {
			if _, isEjected := w.ejected[w.nodes[i].name]; isEjected != isDead(i) {
				t.Errorf("of %d: %s is ejected: %v, failed: %v", count, w.nodes[i].name, isEjected, isDead(i))
			}
		}
	}
	dead(newWorld(t, 30, without{}), 30, func(i int) bool { return i < 10 })
	dead(newWorld(t, 30, without{}), 30, func(i int) bool { return i%3 != 0 }) // two of three zones
	dead(newWorld(t, 200, without{}), 200, func(i int) bool { return i%2 == 0 })
}

func TestAnIsolatedNodeEjectsNoNode(t *testing.T) {
	w := newWorld(t, 30, without{})
	w.addLoad(10)
	began := w.now + time.Second
	w.ownUp = except(began, began+30*time.Second)
	w.run(20 * time.Second)
	if len(w.ejections) > 0 || w.isolations != 1 {
		t.Errorf("ejections %v, isolated %d times, want none and once", w.ejections, w.isolations)
	}
	w.run(time.Minute)
	if len(w.ejections) > 0 || w.isolations != 1 || w.detector.Status().IsolatedSince != nil {
		t.Errorf("after the network is up again: ejections %v, isolated %d times, since %v", w.ejections, w.isolations, w.detector.Status().IsolatedSince)
	}
}

func TestOneOtherNodeNeedsTheAPIServer(t *testing.T) {
	for _, hasServer := range []bool{false, true} {
		w := newWorld(t, 1, without{})
		if hasServer {
			w.server = newMachine("api", time.Millisecond, netip.MustParseAddr("198.51.100.1"))
			w.setTargets()
		}
		w.addLoad(10)
		w.nodes[0].up = until(w.now + time.Second)
		w.run(5 * time.Second)
		if _, isEjected := w.ejected["n0"]; isEjected != hasServer {
			t.Errorf("with an API server %v: ejected %v", hasServer, isEjected)
		}
		if w.detector.Status().HasNoControl == hasServer {
			t.Errorf("with an API server %v: HasNoControl has the same value, want the opposite", hasServer)
		}
	}
}

func TestARebootingNodeIsNotRestoredByItsFirstReset(t *testing.T) {
	w := newWorld(t, 4, without{})
	w.addLoad(10)
	died := w.now + time.Second
	booted, serves := died+20*time.Second, died+50*time.Second
	w.nodes[0].up = except(died, booted)
	w.nodes[0].accepts = func(at time.Duration) bool { return at < booted || at >= serves }
	w.run(time.Minute)
	if back := w.restored["n0"]; back < serves || back > serves+1200*time.Millisecond {
		t.Errorf("restored after %v, want when it accepts connections, after %v", back-died, serves-died)
	}
	// A node that only resets is restored, too, after a minute.
	w.nodes[0].up, w.nodes[0].accepts = except(w.now, w.now+10*time.Second), never
	died = w.now
	w.run(2 * time.Minute)
	if back := w.restored["n0"] - died - 10*time.Second; back < time.Minute || back > 64*time.Second {
		t.Errorf("restored after %v of resets, want after a minute", back)
	}
}

func TestAFlappingNodeStaysEjected(t *testing.T) {
	w := newWorld(t, 4, without{})
	w.addLoad(20)
	begin := w.now
	w.nodes[0].up = func(at time.Duration) bool { return at < begin || int((at-begin)/(5*time.Second))%2 == 1 }
	w.run(2 * time.Minute)
	changes := 2*len(w.ejections) - len(w.ejected)
	if changes > 5 {
		t.Errorf("%d changes in two minutes, want at most 5", changes)
	}
	w.nodes[0].up = always
	w.run(70 * time.Second)
	if len(w.ejected) > 0 {
		t.Errorf("after 70 s without a failure these are still ejected: %v", w.ejected)
	}
}

// The first reply ends each suspicion. The closed port is probed first, so no process on the node is involved.
func TestADeniedClientCostsAProbeInTwoSeconds(t *testing.T) {
	w := newWorld(t, 3, without{})
	w.dial(w.nodes[0], "10.1.0.9", 1).denied = true
	w.run(10 * time.Minute)
	if dials := w.dialsTo[closedPort]; dials < 250 || dials > 300 || w.dials["n0"] != dials || len(w.dialsTo) != 1 {
		t.Errorf("probes by port %v, by node %v", w.dialsTo, w.dials)
	}
}

func TestADeniedClientHidesNoFailure(t *testing.T) {
	w := newWorld(t, 3, without{})
	w.addLoad(20)
	w.dial(w.nodes[0], "10.1.0.9", 20).denied = true
	w.run(20 * time.Second)
	died := w.now
	w.nodes[0].up = until(died)
	w.run(5 * time.Second)
	if at, isEjected := w.ejected["n0"]; !isEjected || at-died > 3200*time.Millisecond {
		t.Errorf("ejected %v after %v, want within 3.2 s", isEjected, at-died)
	}
}

func TestAQuietHour(t *testing.T) {
	w := newWorld(t, 100, without{})
	w.run(time.Hour)
	total := 0
	for name, dials := range w.dials {
		if total += dials; dials != 2 {
			t.Errorf("%s was probed %d times, want once at each port", name, dials)
		}
	}
	if total != 200 {
		t.Errorf("%d probes, want 200", total)
	}
}

func TestARemovedNodeIsRestored(t *testing.T) {
	for _, readdressed := range []bool{false, true} {
		w := newWorld(t, 4, without{})
		w.addLoad(10)
		w.nodes[0].up = until(w.now)
		w.run(5 * time.Second)
		if len(w.ejected) != 1 {
			t.Fatalf("ejected: %v", w.ejected)
		}
		if readdressed {
			w.nodes[0].addr = netip.MustParseAddr("192.0.2.77")
		} else {
			w.nodes, w.loads = w.nodes[1:], w.loads[2:]
		}
		w.setTargets()
		w.run(20 * time.Millisecond)
		if len(w.ejected) != 0 {
			t.Errorf("readdressed %v: ejected: %v", readdressed, w.ejected)
		}
		if readdressed && w.detector.Status().WithoutBaseline != 1 {
			t.Error("the baseline of the former address is used for the new one")
		}
	}
}

// Six of ten SYNs to an endpoint were dropped for a while. That does not delay the ejection when the node fails later.
func TestAnOverloadedNodeThatFails(t *testing.T) {
	w := newWorld(t, 3, without{})
	w.addLoad(10)
	for client := range 10 {
		w.dial(w.nodes[0], fmt.Sprintf("10.1.1.%d", client), 6).denied = true
		w.dial(w.nodes[0], fmt.Sprintf("10.1.1.%d", client), 4)
	}
	w.run(72 * time.Second)
	if len(w.ejections) > 0 {
		t.Fatalf("ejected %v", w.ejections)
	}
	died := w.now
	w.nodes[0].up = until(died)
	w.run(5 * time.Second)
	if at, isEjected := w.ejected["n0"]; !isEjected || at-died > 3500*time.Millisecond {
		t.Errorf("ejected %v after %v, want within 3.5 s", isEjected, at-died)
	}
}

// A node whose proxy's port is closed is restored by resets from another port, after a minute; or by new connections of
// two clients to its endpoints that have a reply.
func TestWhatRestoresANode(t *testing.T) {
	for name, scene := range map[string]struct {
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
			w := newWorld(t, 3, without{})
			w.addLoad(10)
			died := w.now
			up := died + 10*time.Second
			w.nodes[0].up, w.nodes[0].drops = except(died, up), dropFrom(died, scene.shut...)
			w.run(9 * time.Second)
			if _, isEjected := w.ejected["n0"]; !isEjected {
				t.Fatal("n0 is not ejected")
			}
			w.loads, w.flows = nil, nil
			w.run(3 * time.Second)
			for _, client := range scene.clients {
				w.dial(w.nodes[0], client, 1)
			}
			w.run(3 * time.Minute)
			back, isBack := w.restored["n0"]
			if back -= up; isBack != (scene.back[1] > 0) || isBack && (back < scene.back[0] || back > scene.back[1]) {
				t.Errorf("restored %v after %v, want after %v", isBack, back, scene.back)
			}
		})
	}
}

// A pod replies to the client in the name of an endpoint on a failed node.
func TestOneClientIsNoProof(t *testing.T) {
	for clients := 1; clients <= 2; clients++ {
		w := newWorld(t, 3, without{})
		w.addLoad(10)
		for i := range clients {
			w.dial(w.nodes[0], fmt.Sprintf("10.1.2.%d", i), 10).forged = true
		}
		w.run(time.Second)
		w.nodes[0].up = until(w.now)
		w.run(5 * time.Second)
		if _, isEjected := w.ejected["n0"]; isEjected != (clients == 1) {
			t.Errorf("%d clients with a forged reply: ejected %v", clients, isEjected)
		}
	}
}

// A node that neighbour discovery does not find is suspected at once.
func TestANodeWithoutALinkLayerAddressIsSuspected(t *testing.T) {
	w := newWorld(t, 3, without{})
	w.nodes[0].up = until(w.now)
	w.detector.ReportUnreplied([]string{"n0", "absent"})
	w.step()
	w.run(1200 * time.Millisecond)
	if at, isEjected := w.ejected["n0"]; !isEjected || len(w.ejections) != 1 {
		t.Errorf("ejected %v after %v: %v", isEjected, at, w.ejections)
	}
}
