package endure_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The resources that the proxy watches: those at its start, and all.
var (
	initialWatches = []string{"endpointslices", "nodes/evacuated", "nodes/node-1", "servicecidrs", "services"}
	allWatches     = []string{
		"endpointslices", "endpointslices/addresses", "nodes", "nodes/evacuated", "nodes/node-1", "servicecidrs", "services",
	}
)

// storm injects faults between a proxy and its API server, one after the other, while clients dial.
type storm struct {
	*apiSetup
	daemon *daemon
	args   []string // of the proxy
	// isOwned is set if no other process can modify the tables.
	isOwned bool
	counts  map[string]int
}

// TestTablesAfterAPIServerFaults also checks that during the storm every client is served
// with the last known state, and that /healthz reports the interrupted watches. Each storm has every kind of fault, and
// some of them again, in random order.
func TestTablesAfterAPIServerFaults(t *testing.T) {
	t.Parallel() // the two long tests have separate networks, and mostly wait
	s := newAPISetup(t)
	happened := map[string]int{}
	for _, run := range []struct {
		name      string
		ownTables string
	}{{"owned tables", "auto"}, {"tables that any process may change", "never"}} {
		isOver := t.Run(run.name, func(t *testing.T) {
			s.t, s.wire.t = t, t
			storm := &storm{
				apiSetup: s, args: []string{"--own-tables", run.ownTables, "--log-level", "debug"}, isOwned: run.ownTables == "auto", counts: happened,
			}
			storm.execute()
		})
		if !isOver {
			return // its proxy may still be running
		}
	}
	s.t = t
	for _, kind := range faults {
		if happened[kind.name] < 2 {
			t.Errorf("%q happened %d times, want at least 2", kind.name, happened[kind.name])
		}
	}
}

// execute runs the storm from its beginning to its end.
func (s *storm) execute() {
	t := s.t
	s.updateEndpoints(web, "a", "b")
	s.updateEndpoints(sticky, "a", "b")
	s.daemon = s.startProxy(s.args...)
	s.daemon.waitForSync()
	s.waitForClusterTables()
	tr := newTraffic(t)
	s.startTraffic(tr)
	stop := onceAtEnd(t, tr.end)
	before, made := s.livenessChecks.Load(), s.changeCount
	for _, kind := range s.randomFaults() {
		began := time.Now()
		kind.inject(s)
		s.counts[kind.name]++
		t.Logf("%s, for %s", kind.name, time.Since(began).Round(time.Millisecond))
		time.Sleep(time.Duration(s.random.Int64N(int64(500 * time.Millisecond))))
	}
	ended := time.Now()
	s.waitForClusterTables()
	s.waitForInterruption()
	t.Logf("recovered %s after the storm", time.Since(ended).Round(time.Millisecond))
	s.mustRespond("/readyz", http.StatusOK)
	s.mustRespond("/healthz", http.StatusOK)
	s.checkRack()
	stop()
	t.Logf("%d changes, %d new connections, %d with session affinity, %d replies on open ones, %d liveness checks",
		s.changeCount-made, tr.dials.Load(), tr.withAffinity.Load(), tr.replies.Load(), s.livenessChecks.Load()-before)
	if tr.dials.Load() < 500 || tr.withAffinity.Load() < 100 || tr.replies.Load() < 500 || s.livenessChecks.Load()-before < 100 {
		t.Error("too little traffic to be conclusive")
	}
	s.stop()
}

// startTraffic starts every kind of traffic, from pods to ClusterIPs.
func (s *storm) startTraffic(tr *traffic) {
	for _, client := range s.clients[:2] {
		tr.dialSlowly(client, web)
		tr.dialWithAffinity(client, sticky.ipv4())
		tr.dialWithAffinity(client, sticky.ipv6())
		tr.requestOnOneConnection(client, "tcp", web.ipv4())
		tr.requestOnOneConnection(client, "tcp", sticky.ipv6())
		tr.requestOnOneConnection(client, "udp", web.ipv6())
	}
	tr.repeat(s.checkLive)
}

// randomFaults returns every kind of fault, and the quick ones again, in random order.
func (s *storm) randomFaults() []fault {
	order := append([]fault{}, faults...)
	for _, kind := range faults {
		if kind.isQuick && s.random.IntN(2) == 0 {
			order = append(order, kind)
		}
	}
	s.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// checkRack checks that a Service for clients in the same rack leads to the endpoint in this node's current rack.
func (s *storm) checkRack() {
	s.t.Helper()
	reply, err := s.clients[0].Request("tcp", keyed.ipv4(), requestTimeout)
	if err != nil || reply.Pod != racks[s.rack] {
		s.t.Errorf("from %s %q responds, want %q (%v)", s.rack, reply.Pod, racks[s.rack], err)
	}
}

// restart kills the proxy and starts it again.
func (s *storm) restart() {
	s.t.Helper()
	s.running.Lock()
	defer s.running.Unlock()
	s.stop()
	s.daemon = s.startProxy(s.args...)
	wait.Until(s.t, "the proxy responds", func() bool {
		_, _, err := site.Get(s.node.Namespace, healthAddress, "/livez")
		return err == nil
	})
}

// stop kills the proxy. Its kernel worked, so no sync may have failed, with one exception: a sync may come before a
// sabotage is detected or repaired, and delete what another process has just deleted. The next sync is a full sync and
// repairs everything up to then, so each such failure has an external modification of its own.
func (s *storm) stop() {
	s.t.Helper()
	failed, foreign := s.daemon.failedSyncs(), s.daemon.Log.Count("another process changed our tables")
	isOther := func(line string) bool { return !strings.Contains(line, "no such file or directory") }
	if len(failed) > foreign || slices.ContainsFunc(failed, isOther) {
		s.t.Errorf("the proxy logged %d external modifications, and these errors: %q", foreign, failed)
	}
	s.daemon.kill()
}
