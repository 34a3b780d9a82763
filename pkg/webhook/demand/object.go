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

// publishedIn returns the shares that an object contains, by zone.
func publishedIn(d *v1alpha1.ServiceDemand) map[string]float64 {
	shares := make(map[string]float64, len(d.Zones))
	for _, zone := range d.Zones {
		shares[zone.Zone] = float64(zone.DemandPPM) / v1alpha1.PPM
	}
	return shares
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
	object.Zones = zoneShares(decision.Shares)
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

// zoneShares returns shares in parts per million, sorted by zone. The remainder after rounding down goes to the zones
// that lose most, so that the sum is a million if the shares sum to 1. Zones without demand are omitted.
func zoneShares(shares map[string]float64) []v1alpha1.ZoneDemand {
	var zones []v1alpha1.ZoneDemand
	shareSum, sum := 0.0, uint32(0)
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		ppm := toPPM(shares[name])
		zones = append(zones, v1alpha1.ZoneDemand{Zone: name, DemandPPM: ppm})
		shareSum, sum = shareSum+shares[name], sum+ppm
	}
	remainder := func(i int) float64 { return shares[zones[i].Zone]*v1alpha1.PPM - float64(zones[i].DemandPPM) }
	order := make([]int, len(zones))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainder(b), remainder(a)) })
	for _, i := range order {
		if sum < uint32(math.Round(min(shareSum, 1)*v1alpha1.PPM)) {
			zones[i].DemandPPM++
			sum++
		}
	}
	return slices.DeleteFunc(zones, func(z v1alpha1.ZoneDemand) bool { return z.DemandPPM == 0 })
}

// toPPM converts a share to parts per million, rounded down.
func toPPM(share float64) uint32 { return uint32(min(max(share, 0), 1) * v1alpha1.PPM) }
