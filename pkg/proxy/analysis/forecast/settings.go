package forecast

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/trafficdist"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Setting is a setting that a Service could have.
type Setting struct {
	// Name is its name in the output: a value of the API, a bound such as "120%", Now or None.
	Name string
	// bound is the load bound in percent; 0 means none. isMeasured is set if it is planned with measured demand.
	bound      uint64
	isMeasured bool
}

// The names of the settings that are not bounds.
const (
	Now  = "now"  // the Service unchanged
	None = "none" // no preference
)

// measuredSuffix follows the name of a load bound that is planned with measured demand.
const measuredSuffix = " " + policy.Measured

// settingsOf returns the settings to compare, in the order of the output. If isMeasured is set, each bound is followed
// by the same one planned with measured demand.
func settingsOf(bounds []uint64, isMeasured bool) []Setting {
	settings := []Setting{{Name: Now}, {Name: None}, {Name: policy.PreferSameZone}, {Name: policy.PreferSameNode}, {Name: policy.ModeAuto}}
	for _, bound := range bounds {
		settings = append(settings, Setting{Name: policy.FormatMaxLoad(bound), bound: bound})
		if isMeasured {
			settings = append(settings, Setting{policy.FormatMaxLoad(bound) + measuredSuffix, bound, true})
		}
	}
	return settings
}

// demandNote explains settings that are planned with measured demand. Proxies do not know the content of a file.
func (s Setting) demandNote(byFile bool) string {
	note := fmt.Sprintf("%q is a load bound that is planned with measured demand, as with %s: %s. %q is planned with assumed demand, as "+
		"without that annotation.", s.Name, policy.DemandSourceAnnotation, policy.Measured, policy.FormatMaxLoad(s.bound))
	if byFile {
		note += " Proxies do not read the file of --demand: they need ServiceDemands with that demand, by zone, which come from the " +
			"component demand of the webhook's manifests."
	}
	return note
}

// needsHints reports whether the setting works through hints. Then it has no meaning for a headless Service, or for one
// whose EndpointSlices the controller does not write.
func (s Setting) needsHints() bool {
	return s.Name == policy.PreferSameZone || s.Name == policy.PreferSameNode || s.Name == policy.ModeAuto
}

// apply returns the Service with the setting. A bound keeps the preferences of the Service, if it has any.
func (s Setting) apply(service *corev1.Service) *corev1.Service {
	if s.Name == Now {
		return service
	}
	changed := *service
	if s.bound > 0 {
		changed.Annotations = withEntry(service.Annotations, policy.MaxLoadAnnotation, policy.FormatMaxLoad(s.bound))
		delete(changed.Annotations, policy.TopologyAwareHintsAnnotation)
		delete(changed.Annotations, policy.TopologyModeAnnotation)
		if s.isMeasured {
			changed.Annotations = withMeasuredDemand(&changed)
		}
		switch {
		case hasPreference(&changed):
		case changed.Spec.ClusterIP == corev1.ClusterIPNone:
			changed.Annotations[policy.TopologyKeysAnnotation] = string(policy.Zone) + ", " + string(policy.AnyNode)
		default:
			changed.Annotations[policy.TopologyModeAnnotation] = policy.ModeBalanced
		}
		return &changed
	}
	for _, annotation := range slices.Concat(policy.DomainAnnotations, policy.ModeAnnotations) {
		changed.Annotations = withEntry(changed.Annotations, annotation, "")
	}
	changed.Spec.TrafficDistribution = nil
	switch s.Name {
	case policy.PreferSameZone, policy.PreferSameNode:
		changed.Spec.TrafficDistribution = &s.Name
	case policy.ModeAuto:
		changed.Annotations[policy.TopologyModeAnnotation] = policy.ModeAuto
	}
	return &changed
}

// withMeasuredDemand returns a Service's annotations with the one that plans a bound with measured demand.
func withMeasuredDemand(service *corev1.Service) map[string]string {
	return withEntry(service.Annotations, policy.DemandSourceAnnotation, policy.Measured)
}

// hasPreference reports whether a Service, apart from its mode, prefers some endpoints.
func hasPreference(service *corev1.Service) bool {
	if _, has := service.Annotations[policy.TopologyKeysAnnotation]; has {
		return true
	}
	return service.Spec.ClusterIP != corev1.ClusterIPNone &&
		service.Spec.TrafficDistribution != nil && policy.DistributionKeys(*service.Spec.TrafficDistribution) != nil
}

// hintController writes hints as the EndpointSlice controller does.
type hintController struct {
	cache     *topologycache.TopologyCache
	cpuShares map[string]float64 // see cpuShares
}

// newHintController returns the controller with the state of some nodes.
func newHintController(nodes []*corev1.Node) hintController {
	cache := topologycache.NewTopologyCache()
	cache.SetNodes(logr.Discard(), nodes)
	return hintController{cache, cpuShares(nodes)}
}

// managedByController is the name of Kubernetes' EndpointSlice controller in LabelManagedBy.
const managedByController = "endpointslice-controller.k8s.io"

// isWrittenByController reports whether the controller writes a slice, and its hints.
func isWrittenByController(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == managedByController
}

// hint returns a Service's slices with the hints that the controller sets when the Service's settings change, as
// reconcileByAddressType in k8s.io/endpointslice does. Slices that it does not write are unchanged, and it keeps hints
// that it considers good: from PreferSameNode to Auto, hints for nodes stay. If there are none for Auto, it returns
// why.
func (c hintController) hint(
	service *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice,
) (hinted []*discoveryv1.EndpointSlice, noHintsReason string) {
	byType := map[discoveryv1.AddressType][]*discoveryv1.EndpointSlice{}
	for _, slice := range endpointSlices {
		if isWrittenByController(slice) {
			byType[slice.AddressType] = append(byType[slice.AddressType], slice)
		} else {
			hinted = append(hinted, slice)
		}
	}
	for _, addressType := range slices.Sorted(maps.Keys(byType)) {
		unchanged := byType[addressType]
		var updated []*discoveryv1.EndpointSlice
		if policy.ModeOf(service.Annotations).IsAuto() {
			sliceInfo := &topologycache.SliceInfo{
				ServiceKey: service.Namespace + "/" + service.Name, AddressType: addressType, Unchanged: unchanged,
			}
			var events []*topologycache.EventBuilder
			_, updated, events = c.cache.AddHints(logr.Discard(), sliceInfo)
			unchanged = sliceInfo.Unchanged
			isHinted := true
			for _, event := range events {
				if event.EventType == corev1.EventTypeWarning {
					isHinted, noHintsReason = false, event.Message
				}
			}
			if isHinted {
				c.rebalance(updated, unchanged)
			}
		} else {
			_, updated, unchanged = trafficdist.ReconcileHints(service.Spec.TrafficDistribution, nil, nil, unchanged)
		}
		hinted = append(append(hinted, updated...), unchanged...)
	}
	return hinted, noHintsReason
}
