package convert

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// ServiceDemands contain measured demand. They are listed and watched only while a Service is planned with it. A
// cluster without measurements has none.
var ServiceDemands = describe(
	Kind{
		Name: v1alpha1.ServiceDemandKind, Group: v1alpha1.SchemeGroupVersion, Resource: v1alpha1.ServiceDemandResource,
		AddToScheme: v1alpha1.AddToScheme,
		IsOnDemand:  true,
		Optional: &Optional{
			Missing: "this cluster has no ServiceDemands, so Services with measured demand are planned with assumed demand; " +
				"the component demand of the webhook's manifests adds them",
			Forbidden: "listing ServiceDemands is forbidden, so Services with measured demand are planned with assumed demand; " +
				"the component demand of the webhook's manifests has the role that allows it",
		},
	},
	func(object *v1alpha1.ServiceDemand, _ View) (*model.Demand, field.ErrorList) {
		return ServiceDemand(object)
	},
	func(change *model.Change) *map[model.ObjectName]*model.Demand { return &change.Demands }, fullName,
)

// ServiceDemand converts a ServiceDemand. One invalid entry makes the whole object invalid: with only a part of it, the
// rest of the cluster would seem to have no demand.
func ServiceDemand(object *v1alpha1.ServiceDemand) (*model.Demand, field.ErrorList) {
	metadata, zones := field.NewPath("metadata"), field.NewPath("zones")
	errs := checkNamespace(metadata.Child("namespace"), object.Namespace)
	errs = append(errs, checkName(metadata.Child("name"), object.Name, validation.IsDNS1123Label)...)
	errs = append(errs, checkLength(zones, len(object.Zones), v1alpha1.MaxZones)...)
	errs = append(errs, checkCounts(object)...)
	if len(errs) > 0 {
		return nil, errs
	}
	byZone, open := make(map[string]uint32, len(object.Zones)), map[string]uint32{}
	sum, openSum := uint64(0), uint64(0)
	var assumed []string
	for i, zone := range object.Zones {
		path := zones.Index(i).Child("zone")
		if _, isDuplicate := byZone[zone.Zone]; isDuplicate {
			errs = append(errs, field.Duplicate(path, zone.Zone))
		}
		errs = append(errs, invalid(path, zone.Zone, validation.IsValidLabelValue(zone.Zone))...)
		byZone[zone.Zone] = zone.DemandPPM
		sum += uint64(zone.DemandPPM)
		if zone.OpenPPM > 0 {
			open[zone.Zone] = zone.OpenPPM
			openSum += uint64(zone.OpenPPM)
		}
		if zone.Assumed {
			assumed = append(assumed, zone.Zone)
		}
	}
	for _, sum := range []uint64{sum, openSum} {
		if sum > v1alpha1.PPM {
			errs = append(errs, field.Invalid(zones, sum,
				fmt.Sprintf("the sum must not be greater than %d, the demand of all zones", v1alpha1.PPM)))
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	if len(open) == 0 {
		open = nil
	}
	slices.Sort(assumed)
	return &model.Demand{
		Zones: byZone, Open: open, AssumedZones: assumed, EffectiveNodes: uint64(object.EffectiveNodes),
		Averaged: object.Averaged, ObservedAt: object.ObservedAt.UTC(),
		NodesReporting: int(object.NodesReporting), NodesTotal: int(object.NodesTotal), ConnectionsPerMinute: uint64(object.ConnectionsPerMinute),
	}, nil
}

// checkCounts rejects negative counts and a missing time.
func checkCounts(object *v1alpha1.ServiceDemand) field.ErrorList {
	errs := checkCount("effectiveNodes", int64(object.EffectiveNodes))
	errs = append(errs, checkCount("nodesReporting", int64(object.NodesReporting))...)
	errs = append(errs, checkCount("nodesTotal", int64(object.NodesTotal))...)
	errs = append(errs, checkCount("connectionsPerMinute", object.ConnectionsPerMinute)...)
	if object.ObservedAt.IsZero() {
		errs = append(errs, field.Required(field.NewPath("observedAt"), ""))
	}
	return errs
}

func checkCount(name string, count int64) field.ErrorList {
	if count >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(name), count, "must not be negative")}
}
