package endure_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// fault is something that goes wrong. strike returns when nothing is in the way between the proxy and its API server
// any more.
type fault struct {
	name    string
	strike  func(*storm)
	isQuick bool
}

var faults = []fault{
	{"the API server is killed", (*storm).killAPIServer, false},
	{"the API server is away for long", (*storm).stopAPIServer, false},
	{"watches expire", (*storm).expire, false},
	{"the proxy is killed while the API server is away", (*storm).killProxy, false},
	{"connections are cut", (*storm).cut, true},
	{"connections are a black hole", (*storm).blackHole, true},
	{"the Node is lost", (*storm).loseNode, true},
	{"objects change", (*storm).changeObjects, true},
	{"a Service is replaced unheard", (*storm).replaceUnheard, true},
	{"the tables are sabotaged", (*storm).sabotage, true},
}

// pause is a moment of at most so long.
func (s *storm) pause(atMost time.Duration) {
	time.Sleep(time.Duration(s.random.Int64N(int64(atMost))))
}

// lose takes the API server's address away, as if its machine were gone, or leaves the wire, which then ends each
// connection.
func (s *storm) lose() {
	if s.random.IntN(2) == 0 {
		s.wire.rejectConnections()
	}
}

func (s *storm) killAPIServer() {
	s.api.KillAPIServer()
	s.lose()
	s.pause(3 * time.Second)
	s.startAPIServer()
	s.wire.heal()
}

func (s *storm) startAPIServer() {
	s.t.Helper()
	must.Succeed(s.t, s.api.StartAPIServer(s.t.Context()))
}

// stopAPIServer ends the API server for ten seconds at least, and changes objects as soon as it is back.
func (s *storm) stopAPIServer() {
	back := time.Now().Add(7 * time.Second) // and its start takes some
	must.Succeed(s.t, s.api.StopAPIServer())
	s.lose()
	s.waitForInterruption(allFaults...)
	time.Sleep(time.Until(back))
	s.startAPIServer()
	for range 3 {
		s.change()
	}
	s.wire.heal()
}

// expire makes every watch one that goes on from a version that the API server does not know any more, until the
// proxy has got the answer 410: an API server knows no version from before its start. Watches that had delivered
// nothing when they ended are begun anew instead. The proxy is a fresh one, whose watches no storm has broken yet:
// client-go's pauses after that are still short.
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

// expired is how many watches have expired in this life of the proxy.
func (s *storm) expired() int {
	return s.daemon.Log.Count("too old resource version")
}

// killProxy starts the proxy without an API server: it must be live and not ready, and leave everything as it is.
func (s *storm) killProxy() {
	s.wire.rejectConnections()
	s.change()
	s.restart()
	s.waitForInterruption(firstFaults...)
	s.mustRespond("/readyz", http.StatusServiceUnavailable)
	if s.daemon.synced() {
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

// blackHole carries nothing for some seconds. After that what has waited arrives, or all connections end. Meanwhile a
// client cannot know why the API server is silent: client-go checks a connection after half a minute of silence.
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

func (s *storm) replaceUnheard() {
	s.wire.rejectConnections()
	s.replaceService()
	s.replaceService()
	s.wire.heal()
}

// acts are changes of the tables by others that clients do not notice before they are repaired.
var acts = []sabotage{
	{"an added frontend", "add element ip vicinity services { 10.96.0.99 . tcp . 80 : fe00:2 }", ipv4},
	{"a rule behind ours", "add rule ip vicinity nat-postrouting counter", ipv4},
	{"a flushed set", "flush set ip vicinity hairpin", ipv4},
	{"a flushed map", "flush map ip6 vicinity nodeports", []string{"IPv6"}},
}

// sabotage changes the tables. Owned ones cannot be changed.
func (s *storm) sabotage() {
	s.waitForRepair()
	for _, act := range acts {
		before := s.daemon.foreignChanges()
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

// waitForRepair waits until nothing is left of an earlier sabotage. To flush what is empty or to add what is there
// changes nothing, so that there would be nothing to count; and repairs lie half a second apart.
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
