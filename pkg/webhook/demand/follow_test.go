package demand_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/demandpage"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

// fleet is nodes that are heard each interval, unless they are silent.
type fleet struct {
	follower demand.Follower
	nodes    []demand.Node
	asks     map[string]float64 // connections a second of each node
	silent   map[string]bool
	now      time.Time
	web      demand.Service // what there is of shop/web
}

func (f *fleet) services(name string) (demand.Service, bool) { return f.web, name == "shop/web" }

// newFleet returns zones of some nodes, each of which asks once a second.
func newFleet(zones ...int) *fleet {
	f := &fleet{asks: map[string]float64{}, silent: map[string]bool{}, now: time.Unix(1e9, 0)}
	for zone, count := range zones {
		for number := range count {
			name := fmt.Sprintf("%c-%d", 'a'+zone, number)
			f.nodes = append(f.nodes, demand.Node{Name: name, Zone: name[:1], Weight: 1})
			f.asks[name] = 1
		}
	}
	return f
}

func (f *fleet) zone(name string, asks float64) {
	for _, node := range f.nodes {
		if node.Zone == name {
			f.asks[node.Name] = asks
		}
	}
}

// run lets time pass, and returns the last round.
func (f *fleet) run(duration time.Duration) demand.Round {
	var round demand.Round
	for end := f.now.Add(duration); f.now.Before(end); {
		f.now = f.now.Add(interval)
		for _, node := range f.nodes {
			if !f.silent[node.Name] {
				f.follower.Heard(node.Name, f.now, demandpage.Page{
					Cursor: "c", Took: interval, Counts: map[string]uint64{"shop/web": uint64(f.asks[node.Name] * interval.Seconds())},
				})
			}
		}
		round = f.follower.Round(f.now, f.nodes, f.services)
	}
	return round
}

// expectOff checks how much the assumption is off, and in which zone.
func expectOff(t *testing.T, round demand.Round, by float64, zone string) {
	t.Helper()
	report := round.Services["shop/web"]
	if math.Abs(report.OffBy-by) > 0.02*by || report.Zone != zone {
		t.Errorf("off by %.3f in zone %q, want %.3f in %q (parts %v)", report.OffBy, report.Zone, by, zone, report.Parts)
	}
}

func TestHowWrongTheAssumptionIs(t *testing.T) {
	f := newFleet(4, 4, 2)
	expectOff(t, f.run(20*time.Minute), 1, "")
	f.zone("a", 36) // 144 + 4 + 2 of 150
	expectOff(t, f.run(20*time.Minute), 144./150/0.4, "a")
	if rate := f.run(30 * time.Minute).Services["shop/web"].ConnectionsPerMinute; math.Abs(rate-9000) > 100 {
		t.Errorf("%.0f connections a minute, want 9000", rate)
	}
}

func TestTheAssumptionIsWhatLabelsSay(t *testing.T) {
	f := newFleet(4, 4, 2)
	for i := range f.nodes {
		if f.nodes[i].Zone == "a" {
			f.nodes[i].Weight = 36
		}
	}
	f.zone("a", 36)
	expectOff(t, f.run(20*time.Minute), 1, "")
}

func TestSilentNodesCountAsTheirZonesMean(t *testing.T) {
	f := newFleet(9, 9, 9)
	f.zone("b", 10)
	want := 10. / 12 * 3
	expectOff(t, f.run(20*time.Minute), want, "b")
	for _, name := range []string{"b-0", "b-1", "b-2", "a-0"} {
		f.silent[name] = true
	}
	for range 6 { // they go on as before, and then as their zone
		round := f.run(5 * time.Minute)
		expectOff(t, round, want, "b")
	}
	if round := f.run(interval); round.Heard != 23 || round.Nodes != 27 {
		t.Errorf("%d of %d nodes are heard, want 23 of 27", round.Heard, round.Nodes)
	}
}

// TestASilentZoneKeepsItsPart, for hours, whatever the few say that are left of it; what other zones ask is measured on.
func TestASilentZoneKeepsItsPart(t *testing.T) {
	f := newFleet(4, 4, 8)
	f.web = demand.Service{IsPublished: true, NamesNodes: true}
	f.zone("b", 10)
	f.asks["b-0"] = 70
	before := f.run(time.Hour).Decided["shop/web"]
	f.web.Said = &demand.Said{Zones: before.Parts, Nodes: before.Nodes}
	if part := before.Parts["b"]; math.Abs(part-100./112) > 0.01 || before.Nodes["b-0"] < 0.5 {
		t.Fatalf("zone b asks %.3f, named are %v", part, before.Nodes)
	}
	for _, name := range []string{"b-0", "b-1", "b-2"} {
		f.silent[name] = true
	}
	f.run(11 * time.Minute) // in which they go on as before
	f.zone("b", 100)        // which nobody may learn from the one that is left
	during := f.run(5 * time.Hour)
	now := during.Decided["shop/web"]
	if during.IsPaused || fmt.Sprint(during.Silent) != "[b]" || during.Heard != 13 {
		t.Errorf("paused: %t; silent are %q of 16 nodes, %d heard", during.IsPaused, during.Silent, during.Heard)
	}
	if now.Reason != demand.AsBefore || math.Abs(now.Parts["b"]-before.Parts["b"]) > 0.01 {
		t.Errorf("zone b asks %.3f after %.3f: %+v", now.Parts["b"], before.Parts["b"], now.Decision)
	}
	f.zone("a", 19) // while zone c asks 8
	now = f.run(2 * time.Hour).Decided["shop/web"]
	others := now.Parts["a"] + now.Parts["c"]
	if math.Abs(now.Parts["a"]/others-76./84) > 0.02 || math.Abs(now.Parts["b"]-before.Parts["b"]) > 0.02 {
		t.Errorf("zones ask %v", now.Parts)
	}
	for name := range f.silent {
		f.silent[name] = false
	}
	if now = f.run(2 * time.Hour).Decided["shop/web"]; math.Abs(now.Parts["b"]-400./484) > 0.02 {
		t.Errorf("once it is heard again, zone b asks %.3f, want %.3f", now.Parts["b"], 400./484)
	}
}

// TestAZoneThatWasNeverHeardAsksAsAssumed: it has no proxies, such as one whose only node is down, or runs something else.
func TestAZoneThatWasNeverHeardAsksAsAssumed(t *testing.T) {
	f := newFleet(4, 4, 1)
	f.silent["c-0"] = true
	f.zone("b", 9)
	parts := f.run(3 * time.Hour).Services["shop/web"].Parts
	if math.Abs(parts["c"]-1./9) > 0.01 || math.Abs(parts["b"]-8./9*0.9) > 0.02 {
		t.Errorf("zones ask %v", parts)
	}
}

// TestNothingIsKnownOfTheSilence: of less than half of all nodes nobody learns anything.
func TestNothingIsKnownOfTheSilence(t *testing.T) {
	f := newFleet(4, 4, 4)
	f.web = demand.Service{IsPublished: true}
	f.zone("b", 10)
	f.run(20 * time.Minute)
	for _, name := range []string{"b-0", "b-1", "b-2", "a-0", "a-1", "a-2", "c-0"} {
		f.silent[name] = true
	}
	if during := f.run(15 * time.Minute); !during.IsPaused || len(during.Decided) > 0 {
		t.Errorf("paused: %t, to be published: %v", during.IsPaused, during.Decided)
	}
	if after := f.run(15 * time.Minute); len(after.Services) != 0 {
		t.Errorf("after half an hour it is said: %v", after.Services)
	}
}

func TestWhatDoesNotExistIsNotFollowed(t *testing.T) {
	f := newFleet(1)
	lie := demandpage.Page{Cursor: "c", Took: time.Millisecond, Counts: map[string]uint64{"evil/made-up": 1 << 40, "shop/web": 1<<64 - 1}}
	var round demand.Round
	for range 100 {
		f.now = f.now.Add(interval)
		f.follower.Heard("a-0", f.now, lie)
		round = f.follower.Round(f.now, f.nodes, f.services)
	}
	if len(round.Services) != 1 || math.IsInf(round.Services["shop/web"].ConnectionsPerMinute, 0) {
		t.Errorf("followed are %v", round.Services)
	}
}

// published returns the fleet's Service with a round's decision as its published state.
func published(report demand.Report) demand.Service {
	return demand.Service{IsPublished: true, NamesNodes: true, Said: &demand.Said{Zones: report.Parts, Nodes: report.Nodes}}
}

func TestBusyNodesAreNamedAndOthersAreNot(t *testing.T) {
	f := newFleet(20, 20, 10)
	f.web = demand.Service{IsPublished: true, NamesNodes: true}
	f.asks["a-3"], f.asks["c-0"] = 20, 1.2 // 1.2 is less than a quarter more than the mean of c
	first := f.run(20 * time.Minute).Decided["shop/web"]
	all := 19. + 20 + 20 + 9 + 1.2
	if got := first.Nodes["a-3"]; len(first.Nodes) != 1 || math.Abs(got-20/all) > 0.005 || first.Parts["a"] < got {
		t.Errorf("named are %v, want a-3 with %.3f; zones %v", first.Nodes, 20/all, first.Parts)
	}
	f.web = published(first)
	if round := f.run(20 * time.Minute); round.Decided["shop/web"].Reason != demand.AsBefore {
		t.Errorf("20 minutes later: %s", round.Decided["shop/web"].Reason)
	}
	f.asks["a-3"], f.asks["a-4"] = 1, 20 // the zone asks as before
	jumped := f.run(2 * interval).Decided["shop/web"]
	if _, isNamed := jumped.Nodes["a-4"]; !isNamed || jumped.Reason != demand.Differs || len(jumped.Nodes) != 1 || jumped.Off < 5 {
		t.Errorf("after another node became busy: %s, named are %v, off by %.1f", jumped.Reason, jumped.Nodes, jumped.Off)
	}
}

// TestNodesThatAreNamedStayNamedForASuccessor: which knows nothing of them yet.
func TestNodesThatAreNamedStayNamedForASuccessor(t *testing.T) {
	f := newFleet(20, 20, 10)
	f.web = published(demand.Report{Decision: demand.Decision{
		Parts: map[string]float64{"a": 0.4, "b": 0.4, "c": 0.2}, Nodes: map[string]float64{"a-3": 0.2, "gone": 0.001},
	}})
	f.zone("b", 30)
	f.asks["a-3"] = 15
	report := f.run(2 * interval).Decided["shop/web"]
	if report.Reason != demand.Differs || math.Abs(report.Nodes["a-3"]/report.Parts["a"]-0.5) > 0.1 || len(report.Nodes) != 1 {
		t.Errorf("%s: named are %v of zones %v; want half of zone a", report.Reason, report.Nodes, report.Parts)
	}
}

func TestNodesComeAndGo(t *testing.T) {
	f := newFleet(20, 20)
	f.web = demand.Service{IsPublished: true, NamesNodes: true}
	f.asks["b-7"] = 30
	f.run(20 * time.Minute)
	f.nodes = append(f.nodes[5:], demand.Node{Name: "a-new", Zone: "a", Weight: 1}, demand.Node{Name: "0", Zone: "b", Weight: 1})
	f.silent["a-new"], f.silent["0"] = true, true
	report := f.run(20 * time.Minute).Decided["shop/web"]
	// Two that were never heard count as their zones' means: 16 of zone a, 21 of zone b, which makes (30+19)*21/20.
	all := 16 + 49*21./20
	if got := report.Nodes["b-7"]; math.Abs(got-30/all) > 0.02 || len(report.Nodes) != 1 {
		t.Errorf("named are %v, want b-7 with %.3f", report.Nodes, 30/all)
	}
}

func TestWithoutTheHostnameAmongItsKeysNoNodesAreNamed(t *testing.T) {
	f := newFleet(20, 20)
	f.web = demand.Service{IsPublished: true}
	f.asks["a-3"] = 100
	report := f.run(20 * time.Minute).Decided["shop/web"]
	if len(report.Nodes) > 0 || report.Reason != demand.First {
		t.Errorf("%s: named are %v", report.Reason, report.Nodes)
	}
	f.web = demand.Service{IsPublished: true, Said: &demand.Said{Zones: report.Parts, Nodes: map[string]float64{"a-3": 0.5}}}
	if report = f.run(interval).Decided["shop/web"]; report.Reason != demand.Differs || len(report.Nodes) > 0 {
		t.Errorf("where nodes are still named: %s, %v", report.Reason, report.Nodes)
	}
}

// TestWhatNobodyAsksAnyMoreEnds: also for a successor that never heard of it.
func TestWhatNobodyAsksAnyMoreEnds(t *testing.T) {
	f := newFleet(4, 4)
	f.web = published(demand.Report{Decision: demand.Decision{Parts: map[string]float64{"a": 0.5, "b": 0.5}}})
	f.zone("a", 0)
	f.zone("b", 0)
	f.follower.Follow("shop/web")
	if early := f.run(10 * time.Minute).Decided["shop/web"].Reason; early != demand.AsBefore {
		t.Errorf("after ten minutes: %s", early)
	}
	if late := f.run(30 * time.Minute).Decided["shop/web"].Reason; late != demand.Ended {
		t.Errorf("after forty minutes: %s", late)
	}
}
