package demand_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

// testCluster is a set of nodes that report in each interval, except for those that are missing.
type testCluster struct {
	aggregator demand.Aggregator
	nodes      []demand.Node
	demand     map[string]float64 // connections per second of each node
	missing    map[string]bool
	now        time.Time
	web        demand.Service // the state of shop/web
}

func (c *testCluster) services(name string) (demand.Service, bool) { return c.web, name == "shop/web" }

// newTestCluster returns zones with the given numbers of nodes, each with one connection per second.
func newTestCluster(zones ...int) *testCluster {
	c := &testCluster{demand: map[string]float64{}, missing: map[string]bool{}, now: time.Unix(1e9, 0)}
	for zone, count := range zones {
		for i := range count {
			name := fmt.Sprintf("%c-%d", 'a'+zone, i)
			c.nodes = append(c.nodes, demand.Node{Name: name, Zone: name[:1], Weight: 1})
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

func TestMissingNodesAreImputedWithTheirZonesMean(t *testing.T) {
	f := newTestCluster(9, 9, 9)
	f.setZoneDemand("b", 10)
	want := 10. / 12 * 3
	expectSkew(t, f.run(20*time.Minute), want, "b")
	for _, name := range []string{"b-0", "b-1", "b-2", "a-0"} {
		f.missing[name] = true
	}
	for range 6 { // first their last reports count, and then the mean of their zone
		round := f.run(5 * time.Minute)
		expectSkew(t, round, want, "b")
	}
	if round := f.run(interval); round.Reporting != 23 || round.Nodes != 27 {
		t.Errorf("%d of %d nodes reported, want 23 of 27", round.Reporting, round.Nodes)
	}
}

// TestZoneBelowQuorumKeepsItsShare checks that it does so for hours, whatever its remaining nodes report, and that the
// demand of other zones is still measured.
func TestZoneBelowQuorumKeepsItsShare(t *testing.T) {
	f := newTestCluster(4, 4, 8)
	f.web = demand.Service{ShouldPublish: true}
	f.setZoneDemand("b", 10)
	f.demand["b-0"] = 70
	before := f.run(time.Hour).Decided["shop/web"]
	f.web.Published = before.Shares
	if share := before.Shares["b"]; math.Abs(share-100./112) > 0.01 {
		t.Fatalf("share of zone b: %.3f", share)
	}
	for _, name := range []string{"b-0", "b-1", "b-2"} {
		f.missing[name] = true
	}
	f.run(11 * time.Minute)   // the last reports still count
	f.setZoneDemand("b", 100) // must not be inferred from the one node that reports
	during := f.run(5 * time.Hour)
	report := during.Decided["shop/web"]
	if during.NoQuorum || fmt.Sprint(during.ZonesBelowQuorum) != "[b]" || during.Reporting != 13 {
		t.Errorf("no quorum: %t; zones below quorum: %q; %d of 16 nodes reported", during.NoQuorum, during.ZonesBelowQuorum, during.Reporting)
	}
	if report.Reason != demand.Unchanged || math.Abs(report.Shares["b"]-before.Shares["b"]) > 0.01 {
		t.Errorf("share of zone b: %.3f after %.3f: %+v", report.Shares["b"], before.Shares["b"], report.Decision)
	}
	f.setZoneDemand("a", 19) // while zone c has 8
	report = f.run(2 * time.Hour).Decided["shop/web"]
	otherShares := report.Shares["a"] + report.Shares["c"]
	if math.Abs(report.Shares["a"]/otherShares-76./84) > 0.02 || math.Abs(report.Shares["b"]-before.Shares["b"]) > 0.02 {
		t.Errorf("shares: %v", report.Shares)
	}
	for name := range f.missing {
		f.missing[name] = false
	}
	if report = f.run(2 * time.Hour).Decided["shop/web"]; math.Abs(report.Shares["b"]-400./484) > 0.02 {
		t.Errorf("once it reports again, share of zone b: %.3f, want %.3f", report.Shares["b"], 400./484)
	}
}

// TestZoneThatNeverReportedHasTheAssumedDemand checks a zone without proxies: its only node is down, or it runs
// another proxy.
func TestZoneThatNeverReportedHasTheAssumedDemand(t *testing.T) {
	f := newTestCluster(4, 4, 1)
	f.missing["c-0"] = true
	f.setZoneDemand("b", 9)
	shares := f.run(3 * time.Hour).Services["shop/web"].Shares
	if math.Abs(shares["c"]-1./9) > 0.01 || math.Abs(shares["b"]-8./9*0.9) > 0.02 {
		t.Errorf("shares: %v", shares)
	}
}

// TestNoQuorumFreezesEstimates checks that nothing is estimated if fewer than half of all nodes report.
func TestNoQuorumFreezesEstimates(t *testing.T) {
	f := newTestCluster(4, 4, 4)
	f.web = demand.Service{ShouldPublish: true}
	f.setZoneDemand("b", 10)
	f.run(20 * time.Minute)
	for _, name := range []string{"b-0", "b-1", "b-2", "a-0", "a-1", "a-2", "c-0"} {
		f.missing[name] = true
	}
	if during := f.run(15 * time.Minute); !during.NoQuorum || len(during.Decided) > 0 {
		t.Errorf("no quorum: %t, decided: %v", during.NoQuorum, during.Decided)
	}
	if after := f.run(15 * time.Minute); len(after.Services) != 0 {
		t.Errorf("after half an hour, reports remain: %v", after.Services)
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
