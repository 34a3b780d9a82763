package demand

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
)

// managedByLabel is the label by which the publisher recognizes its objects. Objects that an administrator wrote lack
// it and are not changed.
const managedByLabel, managerName = "app.kubernetes.io/managed-by", "vicinity-webhook"

// isManaged reports whether a publisher wrote an object.
func isManaged(d *v1alpha1.ServiceDemand) bool { return d.Labels[managedByLabel] == managerName }

// belongsTo reports whether an object was written for this Service, rather than for an earlier one of the same name.
func belongsTo(d *v1alpha1.ServiceDemand, service *corev1.Service) bool {
	return slices.ContainsFunc(d.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == service.UID })
}

// publishedIn returns the shares of new and of open connections that an object contains, by zone. open is nil if both
// are the same.
func publishedIn(d *v1alpha1.ServiceDemand) (shares, open map[string]float64) {
	shares = make(map[string]float64, len(d.Zones))
	for _, zone := range d.Zones {
		shares[zone.Zone] = float64(zone.DemandPPM) / v1alpha1.PPM
		if zone.OpenPPM > 0 {
			if open == nil {
				open = map[string]float64{}
			}
			open[zone.Zone] = float64(zone.OpenPPM) / v1alpha1.PPM
		}
	}
	return shares, open
}

// assumedZonesIn returns the zones that an object marks as assumed.
func assumedZonesIn(d *v1alpha1.ServiceDemand) (zones []string) {
	for _, zone := range d.Zones {
		if zone.Assumed {
			zones = append(zones, zone.Zone)
		}
	}
	return zones
}

// newObject returns the object for a decision. existing is the existing object; nil means that there is none.
func newObject(
	service *corev1.Service, existing *v1alpha1.ServiceDemand, decision Decision, round Round, now time.Time,
) (*v1alpha1.ServiceDemand, error) {
	object := &v1alpha1.ServiceDemand{ObjectMeta: metav1.ObjectMeta{
		Namespace: service.Namespace, Name: service.Name, Labels: map[string]string{managedByLabel: managerName},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, BlockOwnerDeletion: new(false),
		}},
	}}
	if existing != nil {
		object = existing.DeepCopy()
	}
	object.Zones = zoneDemands(decision, round.AssumedZones)
	object.EffectiveNodes, object.Averaged = decision.EffectiveNodes, decision.Oscillates
	if len(object.Zones) > v1alpha1.MaxZones {
		return nil, fmt.Errorf("build the ServiceDemand of Service %s/%s: %d zones, at most %d allowed; "+
			"using assumed demand: list its clients, or merge zones",
			service.Namespace, service.Name, len(object.Zones), v1alpha1.MaxZones)
	}
	object.NodesReporting, object.NodesTotal = int32(round.Reporting), int32(round.Nodes) //nolint:gosec // numbers of nodes
	object.ConnectionsPerMinute = int64(math.Round(decision.ConnectionsPerMinute))
	object.ObservedAt = metav1.NewTime(now.Truncate(time.Second))
	return object, nil
}

// zoneDemands returns the demand of each zone, sorted by zone. Zones without any are omitted. assumed must be sorted.
func zoneDemands(decision Decision, assumed []string) []v1alpha1.ZoneDemand {
	demand, open := inPPM(decision.Shares), inPPM(decision.Open)
	names := zonesOf(decision.Shares, decision.Open)
	for _, zone := range assumed {
		names[zone] = true
	}
	var zones []v1alpha1.ZoneDemand
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, isAssumed := slices.BinarySearch(assumed, name)
		zone := v1alpha1.ZoneDemand{Zone: name, DemandPPM: demand[name], OpenPPM: open[name], Assumed: isAssumed}
		if zone.DemandPPM > 0 || zone.OpenPPM > 0 || zone.Assumed {
			zones = append(zones, zone)
		}
	}
	return zones
}

// inPPM returns shares in parts per million. The remainder after rounding down goes to the zones that lose most, so
// that the sum is a million if the shares sum to 1.
func inPPM(shares map[string]float64) map[string]uint32 {
	ppm, sum := make(map[string]uint32, len(shares)), uint32(0)
	lost := func(zone string) float64 { return shares[zone]*v1alpha1.PPM - float64(ppm[zone]) }
	for zone, share := range shares {
		ppm[zone] = uint32(min(max(share, 0), 1) * v1alpha1.PPM)
		sum += ppm[zone]
	}
	byName := slices.Sorted(maps.Keys(shares))
	slices.SortStableFunc(byName, func(a, b string) int { return cmp.Compare(lost(b), lost(a)) })
	missing := int(math.Round(min(total(shares), 1)*v1alpha1.PPM)) - int(sum)
	for _, zone := range byName[:min(max(missing, 0), len(byName))] {
		ppm[zone]++
	}
	return ppm
}
