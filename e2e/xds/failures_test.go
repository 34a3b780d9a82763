package xds

import (
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// reactionTime is the time in milliseconds within which clients must react to a response or to a refused connection.
// They take 2 to 37 on an idle machine. Where a client waits for its own timer, it takes 10 or 15 seconds.
const reactionTime = 3000

var allKeys = []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}

// TestAClientFailsOverByItself checks that a client fails over to the next tier, and back when the first tier recovers,
// without a response from the server.
func TestAClientFailsOverByItself(t *testing.T) {
	s := newFixture(t)
	local, zone, far := s.startBackend("node-1", "a"), s.startBackend("node-2", "a"), s.startBackend("node-3", "b")
	s.serve(allKeys, local, zone, far)
	s.completeSync()
	c := s.client()
	c.expectReaches("the first tier", 0, local)
	s.failBackend(local)
	c.expectReachesAfter("the second tier", 1, reactionTime, zone) // a call in flight may fail
	s.failBackend(zone)
	c.expectReachesAfter("the third tier", 1, reactionTime, far)
	s.restartBackend(local)
	c.expectReaches("the first tier again", reactionTime, local)
	if rejected := s.counts.get("rejected EDS") + s.counts.get("rejected CDS") + s.counts.get("rejected LDS"); rejected > 0 {
		t.Errorf("%d responses were rejected", rejected)
	}
}

// TestAClientFollowsChanges checks that calls follow changes of the endpoints without an error.
func TestAClientFollowsChanges(t *testing.T) {
	s := newFixture(t)
	local, far := s.startBackend("node-1", "a"), s.startBackend("node-3", "b")
	s.serve(allKeys, local, far)
	s.completeSync()
	c := s.client()
	c.expectReaches("the first tier", 0, local)
	for range 5 {
		s.serve(allKeys, far)
		c.expectReaches("the first tier was removed", reactionTime, far)
		s.serve(allKeys, local, far)
		c.expectReaches("the first tier was added again", reactionTime, local)
	}
}

// TestAHardKeyFailsAtOnce checks that calls fail immediately, like connections in the kernel.
func TestAHardKeyFailsAtOnce(t *testing.T) {
	s := newFixture(t)
	far := s.startBackend("node-3", "b")
	s.serve([]policy.Key{policy.Zone}, far)
	s.completeSync()
	got := s.client().do(command{Calls: 3, Timeout: 10_000})
	if formatCounts(got.Errors) == "" || len(got.Answers) > 0 || got.Longest > 1000*reactionTime {
		t.Errorf("errors %s, replies %s, the longest call took %d us; want only errors, and at once",
			formatCounts(got.Errors), formatCounts(got.Answers), got.Longest)
	}
}

// TestNoResponseBeforeTheFirstSync checks that a client which connects before the first sync waits for it.
func TestNoResponseBeforeTheFirstSync(t *testing.T) {
	s := newFixture(t)
	local := s.startBackend("node-1", "a")
	s.serve(allKeys, local)
	c := s.client()
	if got := c.do(command{Calls: 1, Timeout: 500, Wait: true}); len(got.Answers) > 0 || s.counts.get("answered LDS") > 0 {
		t.Errorf("replies before the first sync: %s, want no response", formatCounts(got.Answers))
	}
	s.completeSync()
	c.expectReaches("after the first sync", 0, local)
}

// TestAnIdleChannelIsUsedAgain covers a channel that has unsubscribed from everything, and subscribes again.
func TestAnIdleChannelIsUsedAgain(t *testing.T) {
	s := newFixture(t)
	local, far := s.startBackend("node-1", "a"), s.startBackend("node-3", "b")
	s.serve(allKeys, local, far)
	s.completeSync()
	c := s.client()
	for range 3 {
		if got := c.do(command{IdleAfter: 200, Calls: 3}); got.Answers[local.addr.String()] != 3 {
			t.Errorf("replies %s, errors %s", formatCounts(got.Answers), formatCounts(got.Errors))
		}
		wait.Equal(t, "names while the channel is idle", 0, func() int { return s.counts.clients()[1] })
	}
}

// TestARestartUnderLoad checks that existing channels keep their endpoints, and use the new server.
func TestARestartUnderLoad(t *testing.T) {
	s := newFixture(t)
	local, zone := s.startBackend("node-1", "a"), s.startBackend("node-2", "a")
	s.serve(allKeys, local)
	s.completeSync()
	c := s.client()
	c.expectReaches("the first tier", 0, local)
	c.do(command{Load: 1000, Timeout: 5000})
	time.Sleep(200 * time.Millisecond)
	for range 3 {
		s.stop()
		time.Sleep(300 * time.Millisecond)
		s.start()
		time.Sleep(100 * time.Millisecond)
		s.completeSync()
		time.Sleep(300 * time.Millisecond)
	}
	got := c.do(command{Stop: true})
	if len(got.Errors) > 0 || got.Answers[local.addr.String()] < 1000 {
		t.Errorf("under load: errors %s, replies %s", formatCounts(got.Errors), formatCounts(got.Answers))
	}
	s.stop()
	s.serve(allKeys, zone)
	s.start()
	s.completeSync()
	c.expectReaches("the server was restarted with other endpoints", 5000, zone)
}

// TestEveryChannelHasAStream checks that no stream evicts another: grpc-go opens one for each target.
func TestEveryChannelHasAStream(t *testing.T) {
	s := newFixture(t)
	local := s.startBackend("node-1", "a")
	const channels = 20
	for i := range channels {
		service := webService()
		service.Name.Name = "web-" + string(rune('a'+i))
		s.serveAs(service, local)
	}
	s.completeSync()
	c := s.client()
	for range 2 {
		for i := range channels {
			name := "web-" + string(rune('a'+i))
			if got := c.do(command{Channel: name, Target: "xds:///" + name + ".shop:80", Calls: 2}); got.Answers[local.addr.String()] != 2 {
				t.Errorf("%s: errors %s", name, formatCounts(got.Errors))
			}
		}
	}
	wait.Equal(t, "streams and names", [2]int{channels, 3 * channels}, s.counts.clients)
}

// TestHalfOfATierIsDown checks that gRPC uses the other half, and does not leave the tier.
func TestHalfOfATierIsDown(t *testing.T) {
	s := newFixture(t)
	local, other, far := s.startBackend("node-1", "a"), s.startBackend("node-2", "a"), s.startBackend("node-3", "b")
	s.serve([]policy.Key{policy.Zone, policy.AnyNode}, local, other, far)
	s.completeSync()
	c := s.client()
	c.expectReaches("both", 0, local, other)
	s.failBackend(local)
	c.expectReachesAfter("the other one", 1, reactionTime, other)
}

// TestANewChannelWithoutTheServer checks that a new channel fails immediately, and works when the server is back.
func TestANewChannelWithoutTheServer(t *testing.T) {
	s := newFixture(t)
	local := s.startBackend("node-1", "a")
	s.serve(allKeys, local)
	c := s.client()
	s.stop()
	if got := c.do(command{Calls: 1, Timeout: 20_000}); len(got.Errors) != 1 || got.Longest > 1000*reactionTime {
		t.Errorf("errors %s after %d us", formatCounts(got.Errors), got.Longest)
	}
	s.start()
	s.completeSync()
	c.expectReachesAfter("the server was started again", 1, 5000, local) // gRPC may fail a call between its error and the first response
}

// TestAnUnknownNameCostsFifteenSeconds checks that gRPC's own timeout applies, that the name is counted, and that
// another channel gets its response.
func TestAnUnknownNameCostsFifteenSeconds(t *testing.T) {
	s := newFixture(t)
	local := s.startBackend("node-1", "a")
	s.serve(allKeys, local)
	s.completeSync()
	c := s.client()
	c.expectReaches("a name that exists", 0, local)
	got := c.do(command{Channel: "typo", Target: "xds:///wep.shop:80", Calls: 1, Timeout: 30_000})
	if len(got.Errors) != 1 || got.Longest < 14_000_000 || got.Longest > 25_000_000 {
		t.Errorf("errors %s after %d us", formatCounts(got.Errors), got.Longest)
	}
	if unknown := s.counts.get("unknown_name"); unknown != 1 {
		t.Errorf("%d unknown names, want 1: gRPC requests only the listener until it has received the listener", unknown)
	}
	c.expectReaches("a name that exists, after it", 0, local)
}
