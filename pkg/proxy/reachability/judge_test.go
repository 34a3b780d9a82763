package reachability_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
)

// honest has clients dial all nodes.
func (w *world) honest(perSecond int) {
	for _, node := range w.nodes {
		w.dial(node, "10.1.0.1", perSecond)
	}
}

func TestADeadNodeIsJudged(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 150 * time.Millisecond} {
		for phase := range 20 {
			w := newSlowWorld(t, 3, reachability.Without{}, delay)
			w.honest(33)
			w.run(time.Second)
			died := w.now + time.Duration(phase)*25*time.Millisecond
			w.nodes[0].up = except(died, died+20*time.Second)
			w.run(10 * time.Second)
			at, judged := w.out["n0"]
			if limit := 3200 * time.Millisecond; !judged || at-died > limit {
				t.Errorf("delay %v, phase %d: judged %v after %v, want within %v", delay, phase, judged, at-died, limit)
			}
			if len(w.outs) != 1 {
				t.Errorf("delay %v, phase %d: verdicts %v, want one", delay, phase, w.outs)
			}
			w.run(15 * time.Second)
			if back := w.back["n0"] - died - 20*time.Second; back < 0 || back > 1200*time.Millisecond {
				t.Errorf("delay %v, phase %d: back after %v, want within 1.2 s", delay, phase, back)
			}
		}
	}
}

// falseScene is one in which nobody is dead for good, or nobody can know.
type falseScene struct {
	name    string
	nodes   int
	prepare func(w *world)
	// needs is the guard without which the scene has a verdict.
	needs *reachability.Without
}

var falseScenes = []falseScene{
	{name: "a policy denies a client", nodes: 3, prepare: func(w *world) { w.dial(w.nodes[0], "10.1.0.9", 20).denied = true }},
	{name: "a tenant's hole with the node's name", nodes: 3, prepare: func(w *world) {
		w.dial(w.nodes[0], "10.1.0.9", 400).denied = true
	}},
	{name: "one node gone for 1.5 s", nodes: 3, prepare: func(w *world) {
		w.nodes[0].up = except(w.now+time.Second, w.now+2500*time.Millisecond)
	}},
	{name: "delay and loss", nodes: 4, prepare: func(w *world) {
		for _, node := range w.nodes[:2] {
			node.delay, node.loss = 800*time.Millisecond, 0.2
		}
	}},
	{
		name: "a node that never answered a dial", nodes: 4, needs: &reachability.Without{Learned: true, Flows: true},
		prepare: func(w *world) {
			w.nodes = append(w.nodes, &machine{
				name: "closed", zone: "z9", addr: netip.MustParseAddrPort("192.0.2.99:10256"), up: always, dropsDials: always,
				kind: func(time.Duration) reachability.Kind { return reachability.Accepted },
			})
			w.place()
			w.dial(w.nodes[4], "10.1.0.9", 1).denied = true
		},
	},
	{
		name: "this node's own network is gone for 5 s", nodes: 3, needs: &reachability.Without{Controls: true},
		prepare: func(w *world) { w.ownUp = except(w.now+time.Second, w.now+6*time.Second) },
	},
	{
		name: "this node's own network is gone for good", nodes: 30, needs: &reachability.Without{Controls: true},
		prepare: func(w *world) { w.ownUp = until(w.now + time.Second) },
	},
	{
		name: "dials are dropped from some moment on, and connections are answered", nodes: 3,
		needs: &reachability.Without{Flows: true},
		prepare: func(w *world) {
			w.nodes[0].dropsDials = func(at time.Duration) bool { return at > 71*time.Second }
			w.dial(w.nodes[0], "10.1.0.9", 5).denied = true
		},
	},
}

func (s falseScene) run(t *testing.T, without reachability.Without) *world {
	t.Helper()
	w := newWorld(t, s.nodes, without)
	w.honest(10)
	s.prepare(w)
	w.run(time.Minute)
	return w
}

func TestNobodyIsJudgedWhoDoesAnswer(t *testing.T) {
	for _, scene := range falseScenes {
		t.Run(scene.name, func(t *testing.T) {
			w := scene.run(t, reachability.Without{})
			if len(w.outs) > 0 {
				t.Errorf("verdicts against %v", w.outs)
			}
			for name, dials := range w.dials {
				if dials > 60 {
					t.Errorf("%s was dialled %d times in a minute", name, dials)
				}
			}
			t.Logf("suspicions: %v, dials: %v", w.outcomes, w.dials)
		})
	}
}

func TestEachGuardIsNeeded(t *testing.T) {
	for _, scene := range falseScenes {
		if scene.needs == nil {
			continue
		}
		t.Run(fmt.Sprintf("%s, %+v", scene.name, *scene.needs), func(t *testing.T) {
			if w := scene.run(t, *scene.needs); len(w.outs) == 0 {
				t.Error("there is no verdict without the guard: the scene does not show what it is for")
			}
		})
	}
}

func TestManyDieAtOnce(t *testing.T) {
	dead := func(w *world, count int, isDead func(i int) bool) {
		w.honest(10)
		w.run(time.Second)
		for i := range count {
			if isDead(i) {
				w.nodes[i].up = until(w.now)
			}
		}
		w.run(5 * time.Second)
		for i := range count {
			if _, out := w.out[w.nodes[i].name]; out != isDead(i) {
				t.Errorf("of %d: %s is out: %v, dead: %v", count, w.nodes[i].name, out, isDead(i))
			}
		}
	}
	dead(newWorld(t, 30, reachability.Without{}), 30, func(i int) bool { return i < 10 })
	dead(newWorld(t, 30, reachability.Without{}), 30, func(i int) bool { return i%3 != 0 }) // two of three zones
	dead(newWorld(t, 200, reachability.Without{}), 200, func(i int) bool { return i%2 == 0 })
}

func TestACutOffNodeJudgesNobody(t *testing.T) {
	w := newWorld(t, 30, reachability.Without{})
	w.honest(10)
	began := w.now + time.Second
	w.ownUp = except(began, began+30*time.Second)
	w.run(20 * time.Second)
	if len(w.outs) > 0 || w.cutOffs != 1 {
		t.Errorf("verdicts %v, said to be cut off %d times, want none and once", w.outs, w.cutOffs)
	}
	w.run(time.Minute)
	if len(w.outs) > 0 || w.cutOffs != 1 || w.judge.Status().CutOffSince != nil {
		t.Errorf("after the network is back: verdicts %v, cut off %d times, since %v", w.outs, w.cutOffs, w.judge.Status().CutOffSince)
	}
}

func TestOneOtherNodeNeedsTheAPIServer(t *testing.T) {
	for _, hasServer := range []bool{false, true} {
		w := newWorld(t, 1, reachability.Without{})
		if hasServer {
			w.server = &machine{
				name: "api", addr: netip.MustParseAddrPort("198.51.100.1:6443"), up: always, dropsDials: never,
				kind: func(time.Duration) reachability.Kind { return reachability.Accepted },
			}
			w.place()
		}
		w.honest(10)
		w.nodes[0].up = until(w.now + time.Second)
		w.run(5 * time.Second)
		if _, out := w.out["n0"]; out != hasServer {
			t.Errorf("with an API server %v: judged %v", hasServer, out)
		}
	}
}

func TestARebootingNodeIsNotBackWithItsFirstReset(t *testing.T) {
	w := newWorld(t, 4, reachability.Without{})
	w.honest(10)
	died := w.now + time.Second
	booted, serves := died+20*time.Second, died+50*time.Second
	w.nodes[0].up = except(died, booted)
	w.nodes[0].kind = func(at time.Duration) reachability.Kind {
		if at >= booted && at < serves {
			return reachability.Refused
		}
		return reachability.Accepted
	}
	w.run(time.Minute)
	if back := w.back["n0"]; back < serves || back > serves+1200*time.Millisecond {
		t.Errorf("back after %v, want when it accepts dials, after %v", back-died, serves-died)
	}
	// One that only resets comes back, too, after a minute.
	w.nodes[0].up, w.nodes[0].kind = except(w.now, w.now+10*time.Second), func(time.Duration) reachability.Kind { return reachability.Refused }
	died = w.now
	w.run(2 * time.Minute)
	if back := w.back["n0"] - died - 10*time.Second; back < time.Minute || back > 64*time.Second {
		t.Errorf("back after %v of resets, want after a minute", back)
	}
}

func TestAFlappingNodeStaysOut(t *testing.T) {
	w := newWorld(t, 4, reachability.Without{})
	w.honest(20)
	begin := w.now
	w.nodes[0].up = func(at time.Duration) bool { return at < begin || int((at-begin)/(5*time.Second))%2 == 1 }
	w.run(2 * time.Minute)
	changes := 2*len(w.outs) - len(w.out)
	if changes > 5 {
		t.Errorf("%d changes in two minutes, want at most 5", changes)
	}
	w.nodes[0].up = always
	w.run(70 * time.Second)
	if len(w.out) > 0 {
		t.Errorf("after 70 good seconds these are out: %v", w.out)
	}
}

func TestTheRarelyBelievedCostFewDials(t *testing.T) {
	w := newWorld(t, 3, reachability.Without{})
	l := w.dial(w.nodes[0], "10.1.0.9", 1)
	l.denied = true
	w.run(5 * time.Minute)
	before := w.dials["n0"]
	w.run(10 * time.Minute)
	if dials := w.dials["n0"] - before; dials > 10 {
		t.Errorf("%d dials in ten minutes, want at most one a minute", dials)
	}
}

func TestADenialHidesNoDeath(t *testing.T) {
	w := newWorld(t, 3, reachability.Without{})
	w.honest(20)
	w.dial(w.nodes[0], "10.1.0.9", 20).denied = true
	w.run(20 * time.Second)
	died := w.now
	w.nodes[0].up = until(died)
	w.run(5 * time.Second)
	if at, out := w.out["n0"]; !out || at-died > 3200*time.Millisecond {
		t.Errorf("judged %v after %v, want within 3.2 s", out, at-died)
	}
}

func TestAQuietHour(t *testing.T) {
	w := newWorld(t, 100, reachability.Without{})
	w.run(time.Hour)
	total := 0
	for name, dials := range w.dials {
		if total += dials; dials != 1 {
			t.Errorf("%s was dialled %d times, want once", name, dials)
		}
	}
	if total != 100 {
		t.Errorf("%d dials, want 100", total)
	}
}

func TestNoMorePairsAreRememberedThanTold(t *testing.T) {
	w := newWorld(t, 3, reachability.Without{})
	w.look()
	for round := range 4 {
		var flows []reachability.Flow
		for i := range 5000 {
			client := netip.AddrFrom4([4]byte{10, byte(round), byte(i >> 8), byte(i)})
			flows = append(flows, reachability.Flow{
				ID: uint32(i), Client: client, Endpoint: netip.MustParseAddrPort("10.0.0.1:80"), Node: "n0",
			})
		}
		w.judge.Looked(w.clock(), flows)
		w.now += 450 * time.Millisecond
		w.judge.Looked(w.clock(), flows)
		w.step()
		w.now += 10 * time.Millisecond
		w.hear()
		w.step()
	}
	if remembered := w.judge.Remembered(); remembered > 4096 || remembered < 2048 {
		t.Errorf("%d pairs are remembered, want at most 4096", remembered)
	}
}

func TestWhoLeavesIsBack(t *testing.T) {
	for _, readdressed := range []bool{false, true} {
		w := newWorld(t, 4, reachability.Without{})
		w.honest(10)
		w.nodes[0].up = until(w.now)
		w.run(5 * time.Second)
		if len(w.out) != 1 {
			t.Fatalf("out: %v", w.out)
		}
		if readdressed {
			w.nodes[0].addr = netip.MustParseAddrPort("192.0.2.77:10256")
		} else {
			w.nodes, w.loads = w.nodes[1:], w.loads[1:]
		}
		w.place()
		w.run(20 * time.Millisecond)
		if len(w.out) != 0 {
			t.Errorf("readdressed %v: out: %v", readdressed, w.out)
		}
		if readdressed && w.judge.Status().Never != 1 {
			t.Error("what was learned of an address holds for another one")
		}
	}
}
