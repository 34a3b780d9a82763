package xds

import (
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// soon is the time in milliseconds within which clients must react to a response or to a refused connection. They take
// 2 to 37 on an idle machine. Where they use a timer of their own, it takes 10 or 15 seconds.
const soon = 3000

var zoneThenAll = []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}

// TestAClientGoesOnByItself checks that a client fails over to the next tier, and back when its own recovers, without a
// response from the server.
func TestAClientGoesOnByItself(t *testing.T) {
	s := newStage(t)
	here, zone, far := s.backend("node-1", "a"), s.backend("node-2", "a"), s.backend("node-3", "b")
	s.serve(zoneThenAll, here, zone, far)
	s.open()
	c := s.client()
	c.reaches("the first tier", 0, here)
	s.fail(here)
	c.reachesAfter("the second tier", 1, soon, zone) // a call in flight may fail
	s.fail(zone)
	c.reachesAfter("the third tier", 1, soon, far)
	s.recover(here)
	c.reaches("the first tier again", soon, here)
	if rejected := s.counts.get("rejected EDS") + s.counts.get("rejected CDS") + s.counts.get("rejected LDS"); rejected > 0 {
		t.Errorf("%d responses were rejected", rejected)
	}
}

// TestAClientFollowsChanges allows no error.
func TestAClientFollowsChanges(t *testing.T) {
	s := newStage(t)
	here, far := s.backend("node-1", "a"), s.backend("node-3", "b")
	s.serve(zoneThenAll, here, far)
	s.open()
	c := s.client()
	c.reaches("the first tier", 0, here)
	for range 5 {
		s.serve(zoneThenAll, far)
		c.reaches("the first tier was removed", soon, far)
		s.serve(zoneThenAll, here, far)
		c.reaches("the first tier was added again", soon, here)
	}
}

// TestAHardKeyFailsAtOnce checks that calls fail immediately, like connections in the kernel.
func TestAHardKeyFailsAtOnce(t *testing.T) {
	s := newStage(t)
	far := s.backend("node-3", "b")
	s.serve([]policy.Key{policy.Zone}, far)
	s.open()
	got := s.client().do(command{Calls: 3, Timeout: 10_000})
	if inShort(got.Errors) == "" || len(got.Answers) > 0 || got.Longest > 1000*soon {
		t.Errorf("errors %s, replies %s, the longest call took %d us", inShort(got.Errors), inShort(got.Answers), got.Longest)
	}
}

// TestNobodyGetsAResponseTooEarly checks that a client which connects before the first sync waits for it.
func TestNobodyGetsAResponseTooEarly(t *testing.T) {
	s := newStage(t)
	here := s.backend("node-1", "a")
	s.serve(zoneThenAll, here)
	c := s.client()
	if got := c.do(command{Calls: 1, Timeout: 500, Wait: true}); len(got.Answers) > 0 || s.counts.get("answered LDS") > 0 {
		t.Errorf("replies before the first sync: %s", inShort(got.Answers))
	}
	s.open()
	c.reaches("after the first sync", 0, here)
}

// TestAnIdleChannelIsUsedAgain covers a channel that has unsubscribed from everything, and subscribes again.
func TestAnIdleChannelIsUsedAgain(t *testing.T) {
	s := newStage(t)
	here, far := s.backend("node-1", "a"), s.backend("node-3", "b")
	s.serve(zoneThenAll, here, far)
	s.open()
	c := s.client()
	for range 3 {
		if got := c.do(command{IdleAfter: 200, Calls: 3}); got.Answers[here.addr.String()] != 3 {
			t.Errorf("replies %s, errors %s", inShort(got.Answers), inShort(got.Errors))
		}
		wait.Equal(t, "names while the channel is idle", 0, func() int { return s.counts.clients()[1] })
	}
}

// TestARestartUnderLoad checks that existing channels keep their endpoints, and use the new server.
func TestARestartUnderLoad(t *testing.T) {
	s := newStage(t)
	here, zone := s.backend("node-1", "a"), s.backend("node-2", "a")
	s.serve(zoneThenAll, here)
	s.open()
	c := s.client()
	c.reaches("the first tier", 0, here)
	c.do(command{Load: 1000, Timeout: 5000})
	time.Sleep(200 * time.Millisecond)
	for range 3 {
		s.stop()
		time.Sleep(300 * time.Millisecond)
		s.start()
		time.Sleep(100 * time.Millisecond)
		s.open()
		time.Sleep(300 * time.Millisecond)
	}
	got := c.do(command{Stop: true})
	if len(got.Errors) > 0 || got.Answers[here.addr.String()] < 1000 {
		t.Errorf("under load: errors %s, replies %s", inShort(got.Errors), inShort(got.Answers))
	}
	s.stop()
	s.serve(zoneThenAll, zone)
	s.start()
	s.open()
	c.reaches("the server was restarted with other endpoints", 5000, zone)
}

// TestEveryChannelHasAStream checks that no stream evicts another: grpc-go opens one for each target.
func TestEveryChannelHasAStream(t *testing.T) {
	s := newStage(t)
	here := s.backend("node-1", "a")
	const channels = 20
	for i := range channels {
		service := webService()
		service.Name.Name = "web-" + string(rune('a'+i))
		s.serveAs(service, here)
	}
	s.open()
	c := s.client()
	for range 2 {
		for i := range channels {
			name := "web-" + string(rune('a'+i))
			if got := c.do(command{Channel: name, Target: "xds:///" + name + ".shop:80", Calls: 2}); got.Answers[here.addr.String()] != 2 {
				t.Errorf("%s: errors %s", name, inShort(got.Errors))
			}
		}
	}
	wait.Equal(t, "streams and names", [2]int{channels, 3 * channels}, s.counts.clients)
}

// TestHalfOfATierIsAway checks that gRPC uses the other half, and does not leave the tier.
func TestHalfOfATierIsAway(t *testing.T) {
	s := newStage(t)
	here, other, far := s.backend("node-1", "a"), s.backend("node-2", "a"), s.backend("node-3", "b")
	s.serve([]policy.Key{policy.Zone, policy.AnyNode}, here, other, far)
	s.open()
	c := s.client()
	c.reaches("both", 0, here, other)
	s.fail(here)
	c.reachesAfter("the other one", 1, soon, other)
}

// TestANewChannelWithoutTheServer checks that a new channel fails immediately, and works when the server is back.
func TestANewChannelWithoutTheServer(t *testing.T) {
	s := newStage(t)
	here := s.backend("node-1", "a")
	s.serve(zoneThenAll, here)
	c := s.client()
	s.stop()
	if got := c.do(command{Calls: 1, Timeout: 20_000}); len(got.Errors) != 1 || got.Longest > 1000*soon {
		t.Errorf("errors %s after %d us", inShort(got.Errors), got.Longest)
	}
	s.start()
	s.open()
	c.reachesAfter("the server was started again", 1, 5000, here) // gRPC may fail a call between its error and the first response
}

// TestAnUnknownNameCostsFifteenSeconds checks that gRPC's own timeout applies, that the name is counted, and that
// another channel gets its response.
func TestAnUnknownNameCostsFifteenSeconds(t *testing.T) {
	s := newStage(t)
	here := s.backend("node-1", "a")
	s.serve(zoneThenAll, here)
	s.open()
	c := s.client()
	c.reaches("a name that exists", 0, here)
	got := c.do(command{Channel: "typo", Target: "xds:///wep.shop:80", Calls: 1, Timeout: 30_000})
	if len(got.Errors) != 1 || got.Longest < 14_000_000 || got.Longest > 25_000_000 {
		t.Errorf("errors %s after %d us", inShort(got.Errors), got.Longest)
	}
	if unknown := s.counts.get("unknown_name"); unknown != 1 {
		t.Errorf("%d unknown names, want 1: gRPC requests only the listener until it has received that", unknown)
	}
	c.reaches("a name that exists, after it", 0, here)
}
