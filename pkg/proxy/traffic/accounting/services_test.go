//go:build linux

package accounting

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

func serviceNumber(i int) model.ObjectName {
	return model.ObjectName{Namespace: "shop", Name: fmt.Sprintf("service-%05d", i)}
}

// endConnection counts a connection of a Service that sent the given number of bytes.
func endConnection(c *Counters, service model.ObjectName, placement serviceindex.Placement, sent uint64, now time.Time) {
	e := withTraffic(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080"), sent, 0)
	c.OnDestroy(&e, &serviceindex.Attribution{Service: service, Placement: placement}, now)
}

// namedServices returns the Services with series, the total count, and the count of the Services without series.
func namedServices(c *Counters) (named map[model.ObjectName]bool, all, unnamed Count) {
	named = map[model.ObjectName]bool{}
	c.Services(func(row Row) {
		all.add(row.Count)
		if row.Service == (model.ObjectName{}) {
			unnamed.add(row.Count)
		} else {
			named[row.Service] = true
		}
	})
	return named, all, unnamed
}

func settings(limit int, keys ...string) Settings {
	return Settings{PerService: true, MaxServices: limit, Keys: keys}
}

var sameZone = serviceindex.Placement{Proximity: serviceindex.SameZone, Tier: "*", Zone: "a", OwnZone: "a"}

func TestOf10000ServicesAtMost500AreNamedAndSumsEqualTotals(t *testing.T) {
	c := NewCounters(settings(500))
	for round := range 3 {
		for i := range 10_000 {
			endConnection(c, serviceNumber(i), sameZone, uint64(i+round), start)
		}
	}
	found, all, rest := namedServices(c)
	if len(found) != 500 {
		t.Errorf("%d Services are named, want 500", len(found))
	}
	if all != sum(c) || all.Connections != 30_000 || rest.Connections != 28_500 {
		t.Errorf("all Services have %+v, those without a name %+v, and the node %+v", all, rest, sum(c))
	}
}

// A namespace that was first and has all slots loses some to namespaces that have none, and the distribution becomes
// stable. Deleted Services free slots for Services that had none.
func TestNamespacesHaveEqualQuotas(t *testing.T) {
	const limit = 30
	service := func(namespace string, i int) model.ObjectName {
		return model.ObjectName{Namespace: namespace, Name: fmt.Sprint("web-", i)}
	}
	c := NewCounters(settings(limit))
	round := func(namespaces ...string) map[string]int {
		for range 3 {
			for _, namespace := range namespaces {
				for i := range 100 {
					endConnection(c, service(namespace, i), sameZone, 1, start)
				}
			}
		}
		found, _, _ := namedServices(c)
		count := map[string]int{}
		for name := range found {
			count[name.Namespace]++
		}
		return count
	}
	if got := round("greedy"); got["greedy"] != limit {
		t.Errorf("a single namespace has %v", got)
	}
	want := "map[greedy:10 late:10 other:10]"
	if got := fmt.Sprint(round("other", "late", "greedy")); got != want {
		t.Errorf("the Namespaces have %v, want %s", got, want)
	}
	before, _, _ := namedServices(c)
	round("late", "greedy", "other")
	if after, _, _ := namedServices(c); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("slots keep changing: named were %v, now %v", before, after)
	}
	for _, after := range []time.Duration{0, seriesRetention} {
		c.BeginDump()
		c.EndDump(true, func(name model.ObjectName) bool { return name.Namespace != "greedy" }, start.Add(after))
	}
	if got := fmt.Sprint(round("other", "late")); got != "map[late:15 other:15]" {
		t.Errorf("after the Services of one were deleted, the Namespaces have %v", got)
	}
}

// Namespaces that were first give up pairs of the pool for others.
func TestNamespacesHaveEquallyManyPairs(t *testing.T) {
	keys := []string{"example.com/a", "example.com/b", "example.com/c", "example.com/d"}
	c := NewCounters(settings(20, keys...)) // 80 pairs in the pool
	tiers := func(namespace string) map[model.ObjectName]int {
		for range 3 {
			for i := range 10 {
				for _, tier := range keys {
					for _, proximity := range serviceindex.Proximities {
						name := model.ObjectName{Namespace: namespace, Name: fmt.Sprint("web-", i)}
						endConnection(c, name, serviceindex.Placement{Proximity: proximity, Tier: tier}, 1, start)
					}
				}
			}
		}
		count := map[model.ObjectName]int{}
		c.Services(func(row Row) {
			if row.Tier != OtherTier {
				count[model.ObjectName{Namespace: row.Service.Namespace}]++
			}
		})
		return count
	}
	tiers("first")
	if got := fmt.Sprint(tiers("second")); got != "map[first/:40 second/:40]" {
		t.Errorf("after another Namespace had traffic, the pairs are %s", got)
	}
	if got := fmt.Sprint(tiers("first")); got != "map[first/:40 second/:40]" {
		t.Errorf("after the first one had more, the pairs are %s", got)
	}
	if _, all, _ := namedServices(c); all.Connections > sum(c).Connections {
		t.Errorf("counted by Service: %+v; in total: %+v", all, sum(c))
	}
}

func TestADeletedServiceLosesItsSeriesAfterAnHour(t *testing.T) {
	c := NewCounters(settings(2))
	endConnection(c, web, sameZone, 1, start)
	endConnection(c, api, sameZone, 1, start)
	endConnection(c, serviceNumber(1), sameZone, 1, start)
	dump := func(after time.Duration, existing ...model.ObjectName) {
		c.BeginDump()
		c.EndDump(true, func(name model.ObjectName) bool { return slices.Contains(existing, name) }, start.Add(after))
	}
	dump(0, api, serviceNumber(1))
	dump(59*time.Minute, api, serviceNumber(1))
	if found, _, _ := namedServices(c); !found[web] {
		t.Errorf("after 59 minutes it is no longer named: %v", found)
	}
	dump(60*time.Minute, api)
	found, _, _ := namedServices(c)
	if found[web] || !found[api] {
		t.Errorf("after an hour, named are %v", found)
	}
	endConnection(c, serviceNumber(1), sameZone, 1, start)
	if found, _, _ := namedServices(c); !found[serviceNumber(1)] {
		t.Error("its slot is not free")
	}
}

func TestTiers(t *testing.T) {
	c := NewCounters(settings(1, "topology.kubernetes.io/zone"))
	for _, tier := range []string{"topology.kubernetes.io/zone", "tenants.example/word", "*", "hint", "none"} {
		endConnection(c, web, serviceindex.Placement{Proximity: serviceindex.SameZone, Tier: tier, Zone: "a", OwnZone: "a"}, 1, start)
	}
	got := map[string]uint64{}
	c.Services(func(row Row) { got[row.Tier] += row.Connections })
	want := map[string]uint64{"topology.kubernetes.io/zone": 1, OtherTier: 1, "*": 1, "hint": 1, "none": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The keys that tenants choose and the number of Services with traffic do not matter.
func TestAllSeriesTogetherAreBounded(t *testing.T) {
	const limit = 50
	var keys []string
	for i := range 16 {
		keys = append(keys, fmt.Sprintf("example.com/key-%d", i))
	}
	c := NewCounters(settings(limit, keys...))
	for i := range 1000 {
		for _, tier := range append(keys, "*", "hint", "none", "tenants.example/word") {
			for _, proximity := range serviceindex.Proximities {
				endConnection(c, serviceNumber(i), serviceindex.Placement{Proximity: proximity, Tier: tier}, 1, start)
			}
		}
	}
	series := 0
	c.Services(func(row Row) {
		if row.Service != (model.ObjectName{}) {
			series++
		}
	})
	if series > limit*PairsPerService {
		t.Errorf("there are %d series, want at most %d", series, limit*PairsPerService)
	}
	if _, all, _ := namedServices(c); all.Connections > sum(c).Connections || sum(c).Connections != 1000*20*4 {
		t.Errorf("counted by Service: %+v; in total: %+v", all, sum(c))
	}
	total := 0
	c.Node(func(Row) { total++ })
	if total > 20*4 {
		t.Errorf("there are %d series of the node", total)
	}
}

func TestZonesAreBounded(t *testing.T) {
	c := NewCounters(Settings{})
	for i := range 10 * maxNamedZones {
		endConnection(c, web, serviceindex.Placement{Proximity: serviceindex.OtherZone, Zone: fmt.Sprint("zone-", i), OwnZone: "a"}, 1, start)
	}
	pairs, bytes := 0, uint64(0)
	c.Zones(func(_, _ string, traffic Traffic) { pairs, bytes = pairs+1, bytes+traffic.Sent })
	if pairs != maxNamedZones+1 || bytes != 10*maxNamedZones {
		t.Errorf("%d pairs have %d bytes", pairs, bytes)
	}
}
