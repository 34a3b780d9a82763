package demand_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/cluster"
)

// testCluster is a set of nodes that report in each interval, except for those that are missing.
type testCluster struct {
	aggregator demand.Aggregator
	nodes      []cluster.Node
	demand     map[string]float64 // connections per second of each node
	open       map[string]uint64  // open connections of each node
	missing    map[string]bool
	now        time.Time
	web        demand.Service // the state of shop/web
}

func (c *testCluster) services(name string) (demand.Service, bool) { return c.web, name == "shop/web" }

// newTestCluster returns zones with the given numbers of nodes, each with one connection per second.
func newTestCluster(zones ...int) *testCluster {
	c := &testCluster{demand: map[string]float64{}, open: map[string]uint64{}, missing: map[string]bool{}, now: time.Unix(1e9, 0)}
	for zone, count := range zones {
		for i := range count {
			name := fmt.Sprintf("%c-%d", 'a'+zone, i)
			c.nodes = append(c.nodes, cluster.Node{Name: name, Zone: name[:1], Weight: 1, HasReadyProxy: true})
			c.demand[name] = 1
		}
	}
	return c
}

func (c *testCluster) setZoneDemand(name string, perSecond float64) {
	for _, node := range c.nodes {
		if node.Zone == name {
			c.demand[node.Name] = perSecond
		}
	}
}

// run performs rounds for a duration, and returns the last one.
func (c *testCluster) run(duration time.Duration) demand.Round {
	var round demand.Round
	for end := c.now.Add(duration); c.now.Before(end); {
		c.now = c.now.Add(interval)
		for _, node := range c.nodes {
			if !c.missing[node.Name] {
				c.aggregator.AddReport(node.Name, c.now, demandapi.Page{
					Cursor: "c", Duration: interval, Counts: map[string]uint64{"shop/web": uint64(c.demand[node.Name] * interval.Seconds())},
					Open: map[string]uint64{"shop/web": c.open[node.Name]},
				})
			}
		}
		round = c.aggregator.Aggregate(c.now, c.nodes, c.services)
	}
	return round
}

// expectSkew checks the skew, and in which zone it is.
func expectSkew(t *testing.T, round demand.Round, want float64, zone string) {
	t.Helper()
	report := round.Services["shop/web"]
	if math.Abs(report.MaxSkew-want) > 0.02*want || report.MostSkewedZone != zone {
		t.Errorf("skew %.3f in zone %q, want %.3f in %q (shares %v)", report.MaxSkew, report.MostSkewedZone, want, zone, report.Shares)
	}
}

func TestSkewAgainstAssumedDemand(t *testing.T) {
	f := newTestCluster(4, 4, 2)
	expectSkew(t, f.run(20*time.Minute), 1, "")
	f.setZoneDemand("a", 36) // 144 + 4 + 2 of 150
	expectSkew(t, f.run(20*time.Minute), 144./150/0.4, "a")
	if rate := f.run(30 * time.Minute).Services["shop/web"].ConnectionsPerMinute; math.Abs(rate-9000) > 100 {
		t.Errorf("%.0f connections per minute, want 9000", rate)
	}
}

func TestAssumedDemandFollowsLabels(t *testing.T) {
	f := newTestCluster(4, 4, 2)
	for i := range f.nodes {
		if f.nodes[i].Zone == "a" {
			f.nodes[i].Weight = 36
		}
	}
	f.setZoneDemand("a", 36)
	expectSkew(t, f.run(20*time.Minute), 1, "")
}

// TestSilentNodesKeepTheirDemand checks nodes that reported once: they keep their rates for hours, also if most of a
// zone is silent, until they have no proxy or report again.
func TestSilentNodesKeepTheirDemand(t *testing.T) {
	f := newTestCluster(9, 9, 9)
	f.setZoneDemand("b", 10)
	want := 10. / 12 * 3
	expectSkew(t, f.run(20*time.Minute), want, "b")
	for _, name := range []string{"b-0", "b-1", "b-2", "b-3", "b-4", "a-0"} {
		f.missing[name] = true
	}
	for range 4 {
		round := f.run(time.Hour)
		expectSkew(t, round, want, "b")
		if round.Reporting != 21 || round.Nodes != 27 || len(round.AssumedZones) > 0 {
			t.Errorf("%d of %d nodes reported, and %v are assumed; want 21 of 27, and none", round.Reporting, round.Nodes, round.AssumedZones)
		}
	}
	f.nodes = f.nodes[:9] // the other zones have no proxies any more
	expectSkew(t, f.run(2*time.Hour), 1, "")
	clear(f.missing)
	f.demand["a-0"] = 0
	if shares := f.run(2 * time.Hour).Services["shop/web"].Shares; len(shares) != 1 {
		t.Errorf("shares %v, want all in zone a", shares)
	}
}

// TestCursorsKeepDemand checks a proxy that restarts: its first page has no counts.
func TestCursorsKeepDemand(t *testing.T) {
	f := newTestCluster(1, 1)
	f.run(20 * time.Minute)
	f.missing["a-0"] = true
	f.aggregator.AddReport("a-0", f.now.Add(interval), demandapi.Page{Cursor: "new"})
	round := f.run(interval)
	expectSkew(t, round, 1, "")
	if round.Reporting != 2 {
		t.Errorf("%d nodes reported, want 2", round.Reporting)
	}
}

// TestZonesWithUnreportedNodesHaveTheirAssumedShare checks nodes that never responded. If the nodes that report have
// more than that, it stays; nodes that are down, or start, have no demand.
func TestZonesWithUnreportedNodesHaveTheirAssumedShare(t *testing.T) {
	for name, c := range map[string]struct {
		missing, down []string
		perSecond     map[string]float64
		want          map[string]float64
		zones         string
	}{
		"a whole zone": {missing: []string{"c-0"}, perSecond: map[string]float64{"b": 9},
			want: map[string]float64{"a": 5. / 41 * 0.9, "b": 36. / 41 * 0.9, "c": 0.1}, zones: "[c]"},
		"one node of a zone": {missing: []string{"b-0"}, perSecond: map[string]float64{"a": 4, "b": 0, "c": 4},
			want: map[string]float64{"a": 20. / 24 * 0.6, "b": 0.4, "c": 4. / 24 * 0.6}, zones: "[b]"},
		"the others have more": {missing: []string{"b-0"}, perSecond: map[string]float64{"a": 1, "b": 9, "c": 0},
			want: map[string]float64{"a": 5. / 32, "b": 27. / 32}, zones: "[b]"},
		"two zones, one has more": {missing: []string{"b-0", "c-0"}, perSecond: map[string]float64{"a": 1, "b": 9},
			// 0.5 are assumed; the rest goes to what zones have beyond that, 5/32 in zone a and 27/32 - 0.4 in zone b.
			want: map[string]float64{"a": 0.5 * (5. / 32) / (32./32 - 0.4), "b": 0.4 + 0.5*(27./32-0.4)/(32./32-0.4), "c": 0.1}, zones: "[b c]"},
		"all zones": {missing: []string{"a-0", "b-0", "c-0"}, perSecond: map[string]float64{"b": 9},
			want: map[string]float64{"a": 0.5, "b": 0.4, "c": 0.1}, zones: "[a b c]"},
		"a node that is down": {missing: []string{"c-0"}, down: []string{"c-0"}, perSecond: map[string]float64{"b": 9},
			want: map[string]float64{"a": 5. / 41, "b": 36. / 41}, zones: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTestCluster(5, 4, 1)
			for _, node := range c.missing {
				f.missing[node] = true
			}
			for i := range f.nodes {
				f.nodes[i].HasReadyProxy = !slices.Contains(c.down, f.nodes[i].Name)
			}
			for zone, perSecond := range c.perSecond {
				f.setZoneDemand(zone, perSecond)
			}
			round := f.run(3 * time.Hour)
			if fmt.Sprint(round.AssumedZones) != c.zones || len(round.Unreported) != len(c.missing)-len(c.down) {
				t.Errorf("assumed zones %v, want %s; unreported %v", round.AssumedZones, c.zones, round.Unreported)
			}
			for _, zone := range []string{"a", "b", "c"} {
				if got := round.Services["shop/web"].Shares[zone]; math.Abs(got-c.want[zone]) > 0.02 {
					t.Errorf("zone %s has a share of %.3f, want %.3f", zone, got, c.want[zone])
				}
			}
			counted := 0.0
			for _, node := range f.nodes {
				if !f.missing[node.Name] {
					counted += 60 * f.demand[node.Name]
				}
			}
			if got := round.Services["shop/web"].ConnectionsPerMinute; math.Abs(got-counted) > 0.01*counted {
				t.Errorf("%.0f connections per minute, want the counted %.0f", got, counted)
			}
		})
	}
}

// TestSilentClusterKeepsEstimates checks that published demand stays if no proxy responds, also to a new leader.
func TestSilentClusterKeepsEstimates(t *testing.T) {
	f := newTestCluster(4, 4, 4)
	f.web = demand.Service{ShouldPublish: true}
	f.setZoneDemand("b", 10)
	f.web.Published = f.run(time.Hour).Decided["shop/web"].Shares
	for _, node := range f.nodes {
		f.missing[node.Name] = true
	}
	if during := f.run(5 * time.Hour); len(during.Decided) > 0 || during.Reporting != 0 {
		t.Errorf("%d nodes reported, decided: %v", during.Reporting, during.Decided)
	}
	gone := f.aggregator.Aggregate(f.now, f.nodes, func(string) (demand.Service, bool) { return demand.Service{}, false })
	if round := f.run(interval); len(round.Services) != 1 || len(gone.Services) != 0 {
		t.Errorf("estimates of %d Services, and of %d while it does not exist; want 1 and 0", len(round.Services), len(gone.Services))
	}
	f.aggregator = demand.Aggregator{}
	f.aggregator.Track("shop/web")
	if during := f.run(5 * time.Hour); len(during.Decided) > 0 {
		t.Errorf("the new leader decided: %v", during.Decided)
	}
	clear(f.missing)
	if after := f.run(time.Hour).Decided["shop/web"]; after.Reason != demand.Unchanged {
		t.Errorf("decided when proxies respond again: %+v", after.Decision)
	}
}

func TestUnknownServicesAreNotTracked(t *testing.T) {
	f := newTestCluster(1)
	fakePage := demandapi.Page{Cursor: "c", Duration: time.Millisecond,
		Counts: map[string]uint64{"evil/made-up": 1 << 40, "shop/web": 1<<64 - 1}}
	var round demand.Round
	for range 100 {
		f.now = f.now.Add(interval)
		f.aggregator.AddReport("a-0", f.now, fakePage)
		round = f.aggregator.Aggregate(f.now, f.nodes, f.services)
	}
	if len(round.Services) != 1 || math.IsInf(round.Services["shop/web"].ConnectionsPerMinute, 0) {
		t.Errorf("tracked: %v", round.Services)
	}
}

// TestServiceWithoutDemandIsUnpublished checks a new leader that never received a report about the Service.
func TestServiceWithoutDemandIsUnpublished(t *testing.T) {
	f := newTestCluster(4, 4)
	f.web = demand.Service{ShouldPublish: true, Published: map[string]float64{"a": 0.5, "b": 0.5}}
	f.setZoneDemand("a", 0)
	f.setZoneDemand("b", 0)
	f.aggregator.Track("shop/web")
	if early := f.run(10 * time.Minute).Decided["shop/web"].Reason; early != demand.Unchanged {
		t.Errorf("after ten minutes: %s", early)
	}
	if late := f.run(30 * time.Minute).Decided["shop/web"].Reason; late != demand.BelowThreshold {
		t.Errorf("after forty minutes: %s", late)
	}
}
