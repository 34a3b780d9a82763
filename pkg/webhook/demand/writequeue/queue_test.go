package writequeue

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newTestChange(namespace, name string, bytes int, skew float64) Change {
	return Change{namespace: namespace, name: name, bytes: bytes, Skew: skew}
}

// changesFor returns changes of some Services in a Namespace with a given skew.
func changesFor(namespace string, services int, skew float64) []Change {
	var changes []Change
	for number := range services {
		changes = append(changes, newTestChange(namespace, fmt.Sprintf("web-%03d", number), 850, skew))
	}
	return changes
}

// planHour plans an hour of rounds in which all changes are always pending, and returns how often each was written, and
// the backlog at the end.
func planHour(interval time.Duration, proxies int, changes []Change) (
	written map[string]int, bytes int, times []time.Time, last v1alpha1.DemandBacklog,
) {
	var p Queue
	written = map[string]int{}
	for now := midnight; now.Before(midnight.Add(time.Hour)); now = now.Add(interval) {
		var writes []Write
		writes, last = p.Plan(now, interval, proxies, changes)
		for _, w := range writes {
			written[w.Key()]++
			bytes += w.bytes
			times = append(times, w.At)
		}
	}
	return written, bytes, times, last
}

func countWrites(written map[string]int, namespace string) (sum int) {
	for key, count := range written {
		if len(key) > len(namespace) && key[:len(namespace)+1] == namespace+"/" {
			sum += count
		}
	}
	return sum
}

// TestPlanStaysWithinBudget checks 1,000 Services that change all the time, most of them in one Namespace.
func TestPlanStaysWithinBudget(t *testing.T) {
	const proxies = 5000
	changes := slices.Concat(changesFor("large", 900, 20), changesFor("medium", 90, 1.1), changesFor("small", 10, 1.1))
	written, bytes, times, last := planHour(time.Minute, proxies, changes)
	if totalBytes := bytes * proxies; totalBytes > bytesPerSecond*3600+850*proxies || totalBytes < bytesPerSecond*3600*9/10 {
		t.Errorf("%.2f GB per hour over all proxies, want nearly 3.6", float64(totalBytes)/1e9)
	}
	t.Logf("%d writes in an hour, %d bytes for each proxy", len(times), bytes)
	// Ten Services soon reach their own limit: ten times, and then once every five minutes. The others share the rest
	// evenly.
	large, medium, small := countWrites(written, "large"), countWrites(written, "medium"), countWrites(written, "small")
	if small < 150 || small > 200 || large-medium > 10 || medium-large > 10 {
		t.Errorf("written: %d, %d and %d, want 150 to 200 of the last, and equal numbers of the others", large, medium, small)
	}
	if last.Waiting < 900 || last.LongestSeconds < 50*60 || len(last.Services) != v1alpha1.MaxBacklogServices {
		t.Errorf("backlog: %d, the longest for %d s, and %d are listed", last.Waiting, last.LongestSeconds, len(last.Services))
	}
	if !slices.IsSortedFunc(times, time.Time.Compare) {
		t.Error("writes are not in the order of their times")
	}
}

// TestPlanLimitsWriteRate checks the limit of writes per second, even if the limit of bytes allows more.
func TestPlanLimitsWriteRate(t *testing.T) {
	var p Queue
	writes, backlog := p.Plan(midnight, 30*time.Second, 3, changesFor("shop", 1000, 2))
	if len(writes) != 300 || backlog.Waiting != 700 || backlog.LongestSeconds != 0 {
		t.Errorf("%d written in 30 s, %d queued for %d s; want 300 and 700, for 0 s", len(writes), backlog.Waiting, backlog.LongestSeconds)
	}
	for i := range writes[1:] {
		if gap := writes[i+1].At.Sub(writes[i].At); gap < time.Second/MaxPerSecond {
			t.Fatalf("two writes are %s apart", gap)
		}
	}
}

// TestPlanThrottlesFrequentChanges checks that a Service is written in each interval while the budget suffices for all,
// and gives way to others once it was written ten times in an hour.
func TestPlanThrottlesFrequentChanges(t *testing.T) {
	written, _, times, _ := planHour(30*time.Second, 3, changesFor("shop", 1, 2))
	if got := written["shop/web-000"]; got != 120 {
		t.Errorf("alone it was written %d times in an hour, want 120: %v", got, times)
	}
	// The budget is one write in 12.75 s. A Service that changes endlessly has the largest skew.
	const proxies = 15_000
	var q Queue
	counts := map[string]int{}
	for now := midnight; now.Before(midnight.Add(time.Hour)); now = now.Add(30 * time.Second) {
		changes := []Change{newTestChange("shop", "restless", 850, 9)}
		for i := range 10 { // other Services change once in five minutes
			if (now.Sub(midnight)/(30*time.Second))%10 == time.Duration(i) {
				for k := range 3 {
					changes = append(changes, newTestChange("shop", fmt.Sprintf("web-%d-%d", i, k), 850, 2))
				}
			}
		}
		writes, _ := q.Plan(now, 30*time.Second, proxies, changes)
		for _, w := range writes {
			counts[w.name]++
		}
	}
	restless, others := counts["restless"], 0
	delete(counts, "restless")
	for _, count := range counts {
		others += count
	}
	// Without the limit the restless Service would take 120 of the 282 writes.
	if restless > 30 || len(counts) != 30 || others < 240 {
		t.Errorf("a Service that changes endlessly was written %d times, and %d others %d times; want at most 30, and 30 at least 240",
			restless, len(counts), others)
	}
}

func TestPlanKeepsHalfAnIntervalBetweenWrites(t *testing.T) {
	var p Queue
	p.nextSlot = midnight.Add(25 * time.Second) // the budget allows a write late in the interval
	for round, want := range []int{1, 0, 1} {
		now := midnight.Add(time.Duration(round) * 30 * time.Second)
		if writes, _ := p.Plan(now, 30*time.Second, 1, changesFor("shop", 1, 2)); len(writes) != want {
			t.Errorf("round %d: %d writes, want %d", round, len(writes), want)
		}
	}
}

// TestPlanWritesLargestSkewFirst checks two Namespaces that have been served equally.
func TestPlanWritesLargestSkewFirst(t *testing.T) {
	var p Queue
	changes := slices.Concat(changesFor("b", 2, 3), changesFor("a", 1, 1.1), []Change{newTestChange("a", "worst", 850, 9)})
	writes, _ := p.Plan(midnight, time.Minute, 3, changes)
	var order []string
	for _, w := range writes {
		order = append(order, w.Key())
	}
	if got := fmt.Sprint(order); got != "[a/worst b/web-000 b/web-001 a/web-000]" {
		t.Errorf("order: %s, want the largest skew of each Namespace first", got)
	}
}

// TestPlanServesLateNamespace checks that a Namespace whose changes begin late does not wait because of earlier writes
// of others, and gets no credit for the time when it had no changes.
func TestPlanServesLateNamespace(t *testing.T) {
	const proxies = 5000
	var p Queue
	now := midnight
	for range 60 {
		p.Plan(now, time.Minute, proxies, changesFor("early", 1000, 2))
		now = now.Add(time.Minute)
	}
	written := map[string]int{}
	for range 10 {
		writes, _ := p.Plan(now, time.Minute, proxies, slices.Concat(changesFor("early", 1000, 2), changesFor("late", 1000, 1.1)))
		for _, w := range writes {
			written[w.namespace]++
		}
		now = now.Add(time.Minute)
	}
	if difference := written["early"] - written["late"]; difference < -2 || difference > 2 || written["late"] < 60 {
		t.Errorf("written: %v, want equal numbers", written)
	}
}

// TestPlanWritesChangeLargerThanBudget checks that such a change is written alone, and that the budget recovers
// afterwards.
func TestPlanWritesChangeLargerThanBudget(t *testing.T) {
	var p Queue
	var counts []int
	for round := range 6 {
		now := midnight.Add(time.Duration(round) * time.Minute)
		writes, _ := p.Plan(now, time.Minute, 15_000, []Change{newTestChange("shop", fmt.Sprint("web-", round), 9000, 2)})
		counts = append(counts, len(writes))
	}
	// Each takes 135 s.
	if fmt.Sprint(counts) != "[1 0 1 0 1 0]" {
		t.Errorf("writes per round: %v, want [1 0 1 0 1 0]", counts)
	}
}

// TestBacklogListsTheLargestSkew checks which changes are listed, and since when they wait.
func TestBacklogListsTheLargestSkew(t *testing.T) {
	const proxies = 5_000 // a write takes 45 s
	var p Queue
	changes := slices.Concat([]Change{newTestChange("a", "second", 9000, 4), newTestChange("a", "first", 9000, 5)}, changesFor("b", 40, 2))
	p.Plan(midnight, 30*time.Second, proxies, changes)
	_, backlog := p.Plan(midnight.Add(30*time.Second), 30*time.Second, proxies, append(changes[:1:1], changes[2:]...))
	// Four of b are written, because Namespaces share the budget.
	want := v1alpha1.DemandBacklog{Waiting: 37, LongestSeconds: 30, Services: map[string]int64{"a/second": 30}}
	for number := 4; len(want.Services) < v1alpha1.MaxBacklogServices; number++ {
		want.Services[fmt.Sprintf("b/web-%03d", number)] = 30
	}
	if diff := cmp.Diff(want, backlog); diff != "" {
		t.Errorf("backlog (-want +got):\n%s", diff)
	}
}

func TestPlanExpiresState(t *testing.T) {
	var p Queue
	p.Plan(midnight, time.Minute, 3, slices.Concat(changesFor("a", 5, 2), changesFor("b", 5, 2)))
	p.Plan(midnight.Add(2*time.Hour), time.Minute, 3, changesFor("c", 1, 2))
	p.Plan(midnight.Add(4*time.Hour), time.Minute, 3, nil)
	if len(p.writeTimes)+len(p.queuedSince) > 0 || !reflect.DeepEqual(p.served, fair.Queue{}) {
		t.Errorf("state remains: %v, %v and %v", p.writeTimes, p.queuedSince, p.served)
	}
}

// objectOf returns the object of a Service with a UID, as it is created.
func objectOf(uid types.UID) *v1alpha1.ServiceDemand {
	return &v1alpha1.ServiceDemand{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", Labels: map[string]string{"app.kubernetes.io/managed-by": "vicinity-webhook"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: uid, BlockOwnerDeletion: new(false)}},
		},
		Zones:          []v1alpha1.ZoneDemand{{DemandPPM: 750_000}, {Zone: "a", DemandPPM: 250_000}},
		NodesReporting: 9, NodesTotal: 10, ConnectionsPerMinute: 600, ObservedAt: metav1.NewTime(midnight),
	}
}

// TestChangeEstimatesBytes checks the size estimate of an object that is not created yet, with some
// tolerance.
func TestChangeEstimatesBytes(t *testing.T) {
	small := NewChange(nil, objectOf("83e8bd0e-6a9d-4a3f-a7d1-2d2b9a1d3c11"), 1)
	large := objectOf("83e8bd0e-6a9d-4a3f-a7d1-2d2b9a1d3c11")
	for number := range 128 {
		large.Zones = append(large.Zones, v1alpha1.ZoneDemand{Zone: fmt.Sprintf("ip-10-0-%03d-17.example.internal", number), DemandPPM: 7000})
	}
	if got := small.bytes; got < 850 || got > 1400 {
		t.Errorf("a small object has %d bytes, want 850 to 1400", got)
	}
	if got := NewChange(nil, large, 1).bytes; got < 8000 || got > 10000 {
		t.Errorf("a large object has %d bytes, want 8000 to 10000", got)
	}
}
