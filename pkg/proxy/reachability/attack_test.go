package reachability_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
)

// TestThreeHundredNodesDieAtOnce, of 600: there are trials of 128 at a time, those with most connections first.
func TestThreeHundredNodesDieAtOnce(t *testing.T) {
	w := newWorld(t, 600, reachability.Without{})
	w.honest(2)
	w.run(2 * time.Second)
	died := w.now
	for _, node := range w.nodes[:300] {
		node.up = until(died)
	}
	w.run(10 * time.Second)
	var last time.Duration
	for i, node := range w.nodes {
		at, out := w.out[node.name]
		if out != (i < 300) {
			t.Errorf("%s is out: %v", node.name, out)
		}
		last = max(last, at-died)
	}
	if len(w.outs) != 300 || last > 8*time.Second {
		t.Errorf("%d verdicts, the last after %v", len(w.outs), last)
	}
	t.Log("the last is judged after", last)
}

// TestAnHourOfFlapping: whenever a node is judged it did not answer just before, and no other node is judged.
func TestAnHourOfFlapping(t *testing.T) {
	w := newWorld(t, 4, reachability.Without{})
	w.honest(3)
	random, isUp, next := rand.New(rand.NewPCG(35, 1)), true, w.now
	var upSince time.Duration
	w.nodes[0].up = func(time.Duration) bool { return isUp }
	changes := 0
	for end := w.now + time.Hour; w.now < end; w.run(10 * time.Millisecond) {
		if w.now >= next {
			isUp, next = !isUp, w.now+time.Duration(random.IntN(20_000))*time.Millisecond
			upSince = w.now
		}
		for _, name := range w.outs {
			if name != "n0" {
				t.Fatalf("%s is judged", name)
			}
			if isUp && w.now-upSince > 100*time.Millisecond {
				t.Fatalf("judged %v after it came back", w.now-upSince)
			}
		}
		changes, w.outs = changes+len(w.outs), nil
	}
	if changes == 0 || changes > 30 {
		t.Errorf("%d verdicts in an hour, want some and at most 30", changes)
	}
	isUp, w.nodes[0].up = true, always
	w.run(80 * time.Second)
	if len(w.out) > 0 {
		t.Errorf("after 80 good seconds these are out: %v", w.out)
	}
	t.Log(changes, "verdicts")
}

// TestAClockThatJumpsJudgesNobody: a death after the jumps is still found.
func TestAClockThatJumpsJudgesNobody(t *testing.T) {
	w := newWorld(t, 4, reachability.Without{})
	w.honest(10)
	w.dial(w.nodes[1], "10.1.0.9", 10).denied = true
	for range 200 {
		w.run(time.Duration(w.random.IntN(3000)) * time.Millisecond)
		w.skew += time.Duration(w.random.IntN(7200)-3600) * time.Second / time.Duration(1+w.random.IntN(3600))
	}
	if len(w.outs) > 0 {
		t.Fatalf("verdicts against %v", w.outs)
	}
	died := w.now
	w.nodes[0].up = until(died)
	for range 3 {
		w.run(400 * time.Millisecond)
		w.skew -= 10 * time.Second
	}
	w.run(5 * time.Second)
	if at, out := w.out["n0"]; !out || len(w.outs) != 1 {
		t.Errorf("judged %v after %v; verdicts %v", out, at-died, w.outs)
	}
}

// tenant keeps having new clients dial endpoints of its own that never answer. Its EndpointSlices name all nodes, and
// one that does not exist.
func (w *world) tenant(every time.Duration, from int) {
	for i, node := range w.nodes {
		l := w.dial(node, fmt.Sprintf("10.9.%d.%d", from>>8&255, from&255), 1)
		l.every, l.denied, l.to = every, true, w.now+time.Second
		l.next += time.Duration(i) * time.Millisecond
	}
	w.judge.Looked(w.clock(), []reachability.Flow{{
		ID: uint32(from), Client: netip.MustParseAddr("10.9.0.1"), Endpoint: netip.MustParseAddrPort("198.51.100.9:80"), Node: "nobody",
	}})
}

// TestATenantWhoMeansHarm raises suspicions without end, and gets no verdict: neither against nodes that answer, nor by
// hiding one that died.
func TestATenantWhoMeansHarm(t *testing.T) {
	w := newWorld(t, 6, reachability.Without{})
	w.honest(10)
	for second := range 60 {
		w.tenant(200*time.Millisecond, second)
		w.run(time.Second)
	}
	if len(w.outs) > 0 {
		t.Fatalf("verdicts against %v", w.outs)
	}
	for name, dials := range w.dials {
		if dials > 300 {
			t.Errorf("%s was dialled %d times in a minute", name, dials)
		}
	}
	t.Log(w.dials, w.outcomes)
	died := w.now
	w.nodes[0].up = until(died)
	for second := range 5 {
		w.tenant(200*time.Millisecond, 1000+second)
		w.run(time.Second)
	}
	if at, out := w.out["n0"]; !out || at-died > 3200*time.Millisecond || len(w.outs) != 1 {
		t.Errorf("judged %v after %v; verdicts %v", out, at-died, w.outs)
	}
}

// TestWhatStandsBetween: machines that answer in place of a node, and asymmetric routes.
func TestWhatStandsBetween(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"a gateway that resets dials at the nodes behind it": func(w *world) {
			w.nodes[0].kind = func(time.Duration) reachability.Kind { return reachability.Refused }
			w.dial(w.nodes[0], "10.1.0.9", 20).denied = true
		},
		"a CNI that drops our dials from the beginning": func(w *world) {
			w.nodes = append(w.nodes, &machine{
				name: "dropping", zone: "z9", addr: netip.MustParseAddrPort("192.0.2.99:10256"), up: always, dropsDials: always,
				kind: func(time.Duration) reachability.Kind { return reachability.Accepted },
			})
			w.place()
			w.dial(w.nodes[6], "10.1.0.9", 20).denied = true
		},
		"a CNI that drops our dials to all nodes from a moment on": func(w *world) {
			moment := w.now + time.Second
			for _, node := range w.nodes {
				node.dropsDials = func(at time.Duration) bool { return at >= moment }
			}
			w.dial(w.nodes[0], "10.1.0.9", 20).denied = true
		},
		"answers of a zone that come by a way on which much is lost": func(w *world) {
			for i, node := range w.nodes {
				if i%3 == 0 {
					node.loss, node.delay = 0.3, 400*time.Millisecond
				}
			}
		},
		"a link that is gone for a second, again and again": func(w *world) {
			w.ownUp = func(at time.Duration) bool { return at%(5*time.Second) >= time.Second }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 6, reachability.Without{})
			w.honest(10)
			prepare(w)
			w.run(2 * time.Minute)
			if len(w.outs) > 0 {
				t.Errorf("verdicts against %v", w.outs)
			}
			t.Log(w.outcomes, w.dials)
		})
	}
}
