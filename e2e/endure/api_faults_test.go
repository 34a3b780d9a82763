package endure_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// fault is a fault to inject. inject returns when the connection between the proxy and its API server works again.
type fault struct {
	name    string
	inject  func(*storm)
	isQuick bool
}

var faults = []fault{
	{"the API server is killed", (*storm).killAPIServer, false},
	{"the API server is stopped", (*storm).stopAPIServer, false},
	{"watches expire", (*storm).expire, false},
	{"the proxy is killed while the API server is down", (*storm).killProxy, false},
	{"connections are cut", (*storm).cut, true},
	{"connections drop all data", (*storm).blackHole, true},
	{"the Node is deleted", (*storm).loseNode, true},
	{"objects change", (*storm).changeObjects, true},
	{"a Service is replaced during an outage", (*storm).replaceDuringOutage, true},
	{"the tables are modified", (*storm).sabotage, true},
}

// pause sleeps for a random time below limit.
func (s *storm) pause(limit time.Duration) {
	time.Sleep(time.Duration(s.random.Int64N(int64(limit))))
}

// maybeRejectConnections either makes the API server's address refuse connections, as if its machine were off, or leaves the wire as it
// is, which then closes each connection.
func (s *storm) maybeRejectConnections() {
	if s.random.IntN(2) == 0 {
		s.wire.rejectConnections()
	}
}

func (s *storm) killAPIServer() {
	s.api.KillAPIServer()
	s.maybeRejectConnections()
	s.pause(3 * time.Second)
	s.startAPIServer()
	s.wire.heal()
}

func (s *storm) startAPIServer() {
	s.t.Helper()
	must.Succeed(s.t, s.api.StartAPIServer(s.t.Context()))
}

// stopAPIServer stops the API server for at least ten seconds, and changes objects as soon as it is back.
func (s *storm) stopAPIServer() {
	back := time.Now().Add(7 * time.Second) // the start takes some seconds, too
	must.Succeed(s.t, s.api.StopAPIServer())
	s.maybeRejectConnections()
	s.waitForInterruption(allWatches...)
	time.Sleep(time.Until(back))
	s.startAPIServer()
	for range 3 {
		s.change()
	}
	s.wire.heal()
}

// expire makes every watch resume from a version that the API server does not have, until the proxy gets a 410: an API
// server has no version from before its start. A watch that ended before it delivered anything lists again instead.
// The proxy is a new process whose watches no storm has interrupted yet, so client-go's backoff is still short.
func (s *storm) expire() {
	s.t.Helper()
	for range 5 {
		s.restart()
		s.daemon.waitForSync()
		s.waitForInterruption()
		s.changeAll()
		s.waitForClusterTables()
		s.wire.rejectConnections()
		s.changeAll()
		s.api.KillAPIServer()
		s.startAPIServer()
		s.wire.heal()
		s.waitForInterruption()
		if s.expired() > 0 {
			return
		}
	}
	s.t.Error("no watch expired")
}

// expired returns how many watches have expired since the proxy started.
func (s *storm) expired() int {
	return s.daemon.Log.Count("too old resource version")
}

// killProxy restarts the proxy without an API server. The proxy must be live and not ready, and keep everything as it
// is.
func (s *storm) killProxy() {
	s.wire.rejectConnections()
	s.change()
	s.restart()
	s.waitForInterruption(initialWatches...)
	s.mustRespond("/readyz", http.StatusServiceUnavailable)
	if s.daemon.isSynced() {
		s.t.Error("the proxy synced without an API server")
	}
	s.wire.heal()
	s.daemon.waitForSync()
	s.mustRespond("/readyz", http.StatusOK)
}

func (s *storm) cut() {
	for range 1 + s.random.IntN(3) {
		s.wire.cut()
		s.pause(300 * time.Millisecond)
		s.change()
	}
}

// blackHole drops all traffic for some seconds. After that, either the delayed data arrives or all connections are
// closed. Until then a client cannot know why the API server does not respond: client-go checks a connection after half
// a minute without data.
func (s *storm) blackHole() {
	s.wire.freeze()
	s.change()
	s.change()
	s.pause(3 * time.Second)
	if s.random.IntN(2) == 0 {
		s.wire.cut()
	}
	s.wire.thaw()
}

// loseNode deletes the proxy's own Node, and creates it again in another rack.
func (s *storm) loseNode() {
	s.deleteNode(s.node.Name)
	if s.random.IntN(2) == 0 {
		s.wire.cut()
	}
	s.pause(time.Second)
	s.rack = map[string]string{"rack-2": "rack-3", "rack-3": "rack-2"}[s.rack]
	s.createNode(s.node.Name, s.rack)
}

func (s *storm) changeObjects() {
	for range 5 + s.random.IntN(10) {
		s.change()
	}
}

func (s *storm) replaceDuringOutage() {
	s.wire.rejectConnections()
	s.replaceService()
	s.replaceService()
	s.wire.heal()
}

// harmlessSabotages are external modifications of the tables that do not affect clients before they are repaired.
var harmlessSabotages = []sabotage{
	{"an added frontend", "add element ip vicinity services { 10.96.0.99 . tcp . 80 : fe00:2 }", ipv4Only},
	{"a rule after ours", "add rule ip vicinity nat-postrouting counter", ipv4Only},
	{"a flushed set", "flush set ip vicinity hairpin", ipv4Only},
	{"a flushed map", "flush map ip6 vicinity nodeports", []string{"IPv6"}},
}

// sabotage modifies the tables. Owned tables cannot be modified.
func (s *storm) sabotage() {
	s.waitForRepair()
	for _, act := range harmlessSabotages {
		before := s.daemon.externalChanges()
		_, err := s.run("nft", act.text)
		switch {
		case s.isOwned && err == nil:
			s.t.Errorf("%s: another process could change owned tables", act.name)
		case !s.isOwned && err != nil:
			s.t.Errorf("%s: %v", act.name, err)
		case !s.isOwned:
			s.daemon.waitForExternalChange(act, before)
		}
	}
}

// waitForRepair waits until an earlier sabotage is completely repaired. Flushing an empty set or adding an existing
// element changes nothing, so it would not be counted. Repairs are half a second apart.
func (s *storm) waitForRepair() {
	s.t.Helper()
	wait.Until(s.t, "an earlier sabotage is repaired", func() bool {
		list := func(what ...string) string {
			listing, err := s.run("nft", append([]string{"list"}, what...)...)
			must.Succeed(s.t, err)
			return listing
		}
		return !strings.Contains(list("map", "ip", "vicinity", "services"), "10.96.0.99") &&
			strings.Contains(list("set", "ip", "vicinity", "hairpin"), "elements") &&
			strings.Contains(list("map", "ip6", "vicinity", "nodeports"), "elements")
	})
}
