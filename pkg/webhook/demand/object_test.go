package demand

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/cluster"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestZoneSharesSumToAMillion(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		shares, sum := map[string]float64{}, 0.0
		for zone := range 1 + rng.IntN(64) {
			share := rng.Float64()
			shares[fmt.Sprint(zone)] = share
			sum += share
		}
		for zone := range shares {
			shares[zone] /= sum
		}
		zones, ppmSum := zoneDemands(Decision{Shares: shares}, nil), uint32(0)
		for _, zone := range zones {
			ppmSum += zone.DemandPPM
			if exact := shares[zone.Zone] * v1alpha1.PPM; math.Abs(float64(zone.DemandPPM)-exact) >= 1 {
				t.Fatalf("zone %s: %d ppm, exactly %.3f", zone.Zone, zone.DemandPPM, exact)
			}
		}
		isSorted := slices.IsSortedFunc(zones, func(a, b v1alpha1.ZoneDemand) int { return strings.Compare(a.Zone, b.Zone) })
		if ppmSum != v1alpha1.PPM || !isSorted {
			t.Fatalf("the sum is %d, or zones are not sorted: %v", ppmSum, zones)
		}
	}
}

func TestZoneSharesDistributeTheRemainder(t *testing.T) {
	third := 1. / 3
	shares := map[string]float64{"a": third, "b": third, "": third, "none": 0, "nearly none": 1e-9}
	got := zoneDemands(Decision{Shares: shares}, nil)
	want := []v1alpha1.ZoneDemand{{Zone: "", DemandPPM: 333334}, {Zone: "a", DemandPPM: 333333}, {Zone: "b", DemandPPM: 333333}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
}

// TestZonesWithOnlyOneKindOfDemandAreKept also covers zones that are assumed.
func TestZonesWithOnlyOneKindOfDemandAreKept(t *testing.T) {
	third := 1. / 3
	decision := Decision{
		Shares: map[string]float64{"new": 1, "open": 0}, Open: map[string]float64{"open": third, "other": third, "third": third, "none": 0},
	}
	want := []v1alpha1.ZoneDemand{
		{Zone: "assumed", Assumed: true}, {Zone: "new", DemandPPM: 1_000_000}, {Zone: "open", OpenPPM: 333334, Assumed: true},
		{Zone: "other", OpenPPM: 333333}, {Zone: "third", OpenPPM: 333333},
	}
	got := zoneDemands(decision, []string{"assumed", "open"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
	shares, open := publishedIn(&v1alpha1.ServiceDemand{Zones: got})
	if shares["new"] != 1 || shares["open"] != 0 || len(open) != 3 || math.Abs(open["open"]-third) > 1e-6 {
		t.Errorf("published shares %v, open %v", shares, open)
	}
}

// service returns a Service with annotations, given as keys and values. It prefers endpoints of its zone, unless the
// annotations override that.
func service(name, uid string, annotations ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, policy.TopologyKeysAnnotation, string(policy.Zone)+", *")
	for i := 0; i < len(annotations); i += 2 {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotations[i], annotations[i+1])
	}
	return s
}

// newState returns a state with Services with measured demand, by name and UID.
func newState(uids map[string]string, objects ...*v1alpha1.ServiceDemand) *state {
	s := &state{services: map[string]*corev1.Service{}, objects: map[string]*v1alpha1.ServiceDemand{}}
	s.shouldPublish = cluster.Settings{}.PublishesDemand
	for name, uid := range uids {
		s.services["shop/"+name] = service(name, uid, policy.DemandSourceAnnotation, "measured")
	}
	for _, object := range objects {
		s.objects[object.Namespace+"/"+object.Name] = object
	}
	return s
}

func newReport(reason Reason, skew float64) Report {
	return Report{Decision: Decision{
		Reason: reason, Skew: skew, ConnectionsPerMinute: 600.4,
		Shares: map[string]float64{"a": 0.25, "": 0.75},
	}}
}

// storedObject returns the object of shop/web, as it would be stored.
func storedObject(t *testing.T) *v1alpha1.ServiceDemand {
	t.Helper()
	object, err := newObject(service("web", "1"), nil, newReport(First, 2).Decision, Round{Reporting: 9, Nodes: 10}, midnight)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func TestNewObject(t *testing.T) {
	want := &v1alpha1.ServiceDemand{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", Labels: map[string]string{"app.kubernetes.io/managed-by": "vicinity-webhook"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "1", BlockOwnerDeletion: new(false)}},
		},
		Zones:          []v1alpha1.ZoneDemand{{Zone: "", DemandPPM: 750_000}, {Zone: "a", DemandPPM: 250_000}},
		NodesReporting: 9, NodesTotal: 10, ConnectionsPerMinute: 600,
		ObservedAt: metav1.NewTime(midnight),
	}
	got := storedObject(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	shares, open := publishedIn(got)
	if diff := cmp.Diff(map[string]float64{"a": 0.25, "": 0.75}, shares); diff != "" || open != nil {
		t.Errorf("open %v, shares (-want +got):\n%s", open, diff)
	}
}

// TestChanges also checks what is not written.
func TestChanges(t *testing.T) {
	foreign := storedObject(t)
	foreign.Labels = nil
	unrequested := newState(map[string]string{"web": "1"}, storedObject(t))
	unrequested.services["shop/web"] = service("web", "1", policy.ClientsAnnotation, "shop/front")
	tooManyZones := newReport(First, 2)
	tooManyZones.Shares = map[string]float64{}
	for zone := range v1alpha1.MaxZones + 1 {
		tooManyZones.Shares[fmt.Sprint(zone)] = 1. / (v1alpha1.MaxZones + 1)
	}
	asChanged := func(report Report) Report {
		report.Reason, report.Skew = Changed, 4
		return report
	}
	otherVersion := storedObject(t)
	otherVersion.ObservedAt, otherVersion.Zones = metav1.Time{}, []v1alpha1.ZoneDemand{{Zone: "a"}}
	for _, c := range []struct {
		name string
		seen *state
		what Report
		want string
	}{
		{"the first estimate", newState(map[string]string{"web": "1"}), newReport(First, 2), "create 2"},
		{"few connections", newState(map[string]string{"web": "1"}), newReport(InsufficientData, 0), ""},
		{"unchanged shares", newState(map[string]string{"web": "1"}, storedObject(t)), newReport(Unchanged, 1), ""},
		{"changed shares", newState(map[string]string{"web": "1"}, storedObject(t)), newReport(Changed, 3), "update 3"},
		{"below the threshold", newState(map[string]string{"web": "1"}, storedObject(t)), newReport(BelowThreshold, 1), "delete 1"},
		{"written for an earlier Service of that name", newState(map[string]string{"web": "2"}, storedObject(t)), newReport(First, 2),
			"delete +Inf"},
		{"the Service was deleted", newState(nil, storedObject(t)), Report{}, "delete +Inf"},
		{"written by another version of the webhook", newState(map[string]string{"web": "1"}, otherVersion), newReport(First, 2), "delete +Inf"},
		{"no longer requested", unrequested, Report{}, "delete +Inf"},
		{"unmanaged", newState(map[string]string{"web": "1"}, foreign), newReport(First, 2), ""},
		{"too many zones", newState(map[string]string{"web": "1"}), tooManyZones, "at most 512 allowed"},
		{"too many zones, and a stored object", newState(map[string]string{"web": "1"}, storedObject(t)), asChanged(tooManyZones),
			"delete 4; at most 512 allowed"},
	} {
		changes, err := c.seen.changes(midnight, Round{Decided: map[string]Report{"shop/web": c.what}})
		var got []string
		for _, r := range changes {
			operation := map[[2]bool]string{{false, true}: "create", {true, true}: "update", {true, false}: "delete"}
			got = append(got, fmt.Sprintf("%s %g", operation[[2]bool{r.Before != nil, r.After != nil}], r.Skew))
		}
		if err != nil {
			_, cause, _ := strings.Cut(err.Error(), "zones, ")
			cause, _, _ = strings.Cut(cause, ";")
			got = append(got, cause)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAssumedZonesAreWrittenEveryTenMinutes checks an object whose demand is unchanged.
func TestAssumedZonesAreWrittenEveryTenMinutes(t *testing.T) {
	for _, c := range []struct {
		minutes            int
		published, current []string
		want               bool
	}{
		{60, nil, nil, false},
		{60, nil, []string{"a"}, true},
		{60, []string{"a"}, []string{"a"}, false},
		{60, []string{"a"}, nil, true},
		{9, nil, []string{"a"}, false},
	} {
		object := storedObject(t)
		for i := range object.Zones {
			object.Zones[i].Assumed = slices.Contains(c.published, object.Zones[i].Zone)
		}
		round := Round{Decided: map[string]Report{"shop/web": newReport(Unchanged, 1)}, AssumedZones: c.current}
		changes, err := newState(map[string]string{"web": "1"}, object).changes(midnight.Add(time.Duration(c.minutes)*time.Minute), round)
		if err != nil || (len(changes) == 1) != c.want {
			t.Errorf("%+v: %d writes, error %v", c, len(changes), err)
			continue
		}
		if c.want && !slices.Equal(assumedZonesIn(changes[0].After), c.current) {
			t.Errorf("%+v: wrote %+v", c, changes[0].After)
		}
	}
}

// TestPublishedStateIsPassedToTheEstimator checks what a new leader continues from.
func TestPublishedStateIsPassedToTheEstimator(t *testing.T) {
	object := storedObject(t)
	object.EffectiveNodes, object.Zones[0].OpenPPM = 8, 1_000_000
	got, exists := newState(map[string]string{"web": "1"}, object).lookupService()("shop/web")
	want := Service{
		ShouldPublish: true, Published: map[string]float64{"": 0.75, "a": 0.25}, PublishedOpen: map[string]float64{"": 1}, PublishedNodes: 8,
	}
	if diff := cmp.Diff(want, got); diff != "" || !exists {
		t.Errorf("exists: %t, Service (-want +got):\n%s", exists, diff)
	}
}
