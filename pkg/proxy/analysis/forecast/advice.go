package forecast

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/simulate"
)

// A change is worthwhile with this much more in the zone, or this much less load on the busiest endpoint.
const (
	minZoneGain = 0.05
	minLoadGain = 0.25
)

// keepsBound reports whether the expected load of the busiest endpoint is within a load bound, in percent. It compares
// in the precision of printed loads.
func (p *Projection) keepsBound(bound uint64) bool { return p.Busiest.Load < float64(bound)/100+0.005 }

// advise recommends a setting, if one would improve anything and keeps the first bound that is compared. A setting that
// protects the endpoints as well as the bound does, and works with any proxy, comes first. If the Service has a bound
// already, that was a choice: the only possible advice is to plan it with measured demand. A setting without effect
// needs a fix, not another setting in addition: Causes has the fix.
func (f *forecaster) advise(s *Service, object *corev1.Service, parsed *model.Service) *Advice {
	now, field, bounds := s.projection(Now), s.projection(policy.PreferSameZone), f.boundsFor(s)
	if s.asMeasured != nil {
		return f.adviseMeasured(s, object, parsed)
	}
	if field == nil || len(bounds) == 0 || parsed.InternalTrafficLocal || parsed.IsHeadless && len(parsed.Topology.Keys) == 0 ||
		parsed.Topology.MaxLoad > 0 || slices.ContainsFunc(s.Causes, func(c Problem) bool { return c.Denied }) {
		return nil
	}
	isNearer := func(p *Projection) bool { return p.Zone-now.Zone >= minZoneGain }
	isBetter := func(p *Projection) bool {
		return p.Note == "" && p.keepsBound(bounds[0].bound) && p.Refused <= now.Refused &&
			(isNearer(p) || now.Busiest.Load-p.Busiest.Load >= minLoadGain)
	}
	if len(parsed.Topology.Keys) == 0 && isNearer(field) && isBetter(field) {
		if hasDistribution(object) { // it is already set, but there are no hints
			return nil
		}
		return &Advice{
			Setting: field.Setting,
			Sentence: fmt.Sprintf("%s keeps %s in the zone instead of %s, and the expected load of the busiest endpoint is %s times the mean.",
				field.Setting, percent(field.Zone), percent(now.Zone), times(field.Busiest.Load)),
			Patch: settingsPatch(object, Setting{Name: field.Setting}.apply(object)),
		}
	}
	for _, setting := range bounds {
		bounded := s.projection(setting.Name)
		if !isBetter(bounded) {
			continue
		}
		bound := policy.FormatMaxLoad(setting.bound)
		if setting.isMeasured {
			bound += ", planned with measured demand,"
		}
		sentence := fmt.Sprintf("The expected load of %s is %s times the mean; with a load bound of %s %s", now.Busiest.Endpoint,
			times(now.Busiest.Load), bound,
			joinClauses("the highest expected load is "+times(bounded.Busiest.Load)+" times", staysInZone(bounded, now)))
		if isNearer(bounded) {
			sentence = fmt.Sprintf("A load bound of %s keeps %s in the zone instead of %s, and the expected load of the busiest endpoint is "+
				"%s times the mean", bound, percent(bounded.Zone), percent(now.Zone), times(bounded.Busiest.Load))
			if field.Note == "" && !field.keepsBound(setting.bound) {
				sentence += fmt.Sprintf("; %s would send %s times the mean to %s", field.Setting, times(field.Busiest.Load), field.Busiest.Endpoint)
			}
		}
		return &Advice{setting.Name, sentence + ".", settingsPatch(object, setting.apply(object))}
	}
	return nil
}

// boundsFor returns the settings with the first bound to compare, in the order of recommendation: if there is a
// ServiceDemand, the one that is planned with it comes first; with a file, the one that needs no ServiceDemand.
func (f *forecaster) boundsFor(s *Service) (bounds []Setting) {
	for _, setting := range f.settings {
		isFirst := len(bounds) == 0 || setting.bound == bounds[0].bound
		if setting.bound > 0 && isFirst && (!setting.isMeasured || f.demand != nil || s.DemandSource == string(simulate.Measured)) {
			bounds = append(bounds, setting)
		}
	}
	if s.DemandSource == string(simulate.Measured) {
		slices.Reverse(bounds)
	}
	return bounds
}

// adviseMeasured recommends planning the existing bound with measured demand, if that keeps it and improves anything.
func (f *forecaster) adviseMeasured(s *Service, object *corev1.Service, parsed *model.Service) *Advice {
	now, asMeasured := s.projection(Now), s.asMeasured
	isNearer := asMeasured.Zone-now.Zone >= minZoneGain
	isLessLoaded := now.Busiest.Load-asMeasured.Busiest.Load >= minLoadGain
	fixesBound := !now.keepsBound(parsed.Topology.MaxLoad)
	if !asMeasured.keepsBound(parsed.Topology.MaxLoad) || asMeasured.Refused > now.Refused || !isNearer && !isLessLoaded && !fixesBound ||
		parsed.Topology.Measured {
		return nil
	}
	changed := *object
	changed.Annotations = withMeasuredDemand(object)
	return &Advice{
		Setting: policy.Measured,
		Sentence: fmt.Sprintf("With its load bound planned with measured demand, %s.", joinClauses(
			describeChange("the expected load of the busiest endpoint is %s times the mean", times(asMeasured.Busiest.Load),
				times(now.Busiest.Load)),
			staysInZone(asMeasured, now))),
		Patch: settingsPatch(object, &changed),
	}
}

// staysInZone describes how much stays in the zone instead of what stays now; empty if that is the same.
func staysInZone(after, now *Projection) string {
	return describeChange("%s stay in the zone", percent(after.Zone), percent(now.Zone))
}

// describeChange describes a value, and the one that it replaces; empty if the two are the same as printed.
func describeChange(format, after, now string) string {
	if after == now {
		return ""
	}
	return fmt.Sprintf(format, after) + " instead of " + now
}

// joinClauses joins two clauses, of which either may be empty.
func joinClauses(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + ", and " + second
}

// hasDistribution reports whether a Service has a trafficDistribution with an effect.
func hasDistribution(service *corev1.Service) bool {
	return service.Spec.TrafficDistribution != nil && policy.DistributionKeys(*service.Spec.TrafficDistribution) != nil &&
		!policy.ModeOf(service.Annotations).IsAuto()
}

// settingsPatch returns the change of a Service to the settings of another one: a patch in YAML, in which null removes
// a field.
func settingsPatch(from, to *corev1.Service) string {
	var patch strings.Builder
	for _, annotation := range slices.Concat(policy.DomainAnnotations, policy.ModeAnnotations) {
		oldValue, hadValue := from.Annotations[annotation]
		newValue, hasValue := to.Annotations[annotation]
		if hadValue == hasValue && oldValue == newValue {
			continue
		}
		if patch.Len() == 0 {
			patch.WriteString("metadata:\n  annotations:\n")
		}
		written := "null"
		if hasValue {
			written = strconv.Quote(newValue)
		}
		patch.WriteString("    " + annotation + ": " + written + "\n")
	}
	if oldValue, newValue := from.Spec.TrafficDistribution, to.Spec.TrafficDistribution; ptr.Deref(oldValue, "") != ptr.Deref(newValue, "") {
		patch.WriteString("spec:\n  trafficDistribution: " + ptr.Deref(newValue, "null") + "\n")
	}
	return patch.String()
}

// projection returns the projection under a setting; nil means that there is none.
func (s *Service) projection(setting string) *Projection {
	for i := range s.Projections {
		if s.Projections[i].Setting == setting {
			return &s.Projections[i]
		}
	}
	return nil
}

// percent formats a share from 0 to 1. It never rounds to 0 % or to 100 %.
func percent(share float64) string {
	switch {
	case share == 0, share == 1:
		return fmt.Sprintf("%.0f %%", share*100)
	case share < 0.001:
		return "< 0.1 %"
	case share > 0.999:
		return "> 99.9 %"
	case share >= 0.1 && share <= 0.9:
		return fmt.Sprintf("%.0f %%", share*100)
	}
	return fmt.Sprintf("%.1f %%", share*100)
}

// times formats a multiple.
func times(load float64) string { return fmt.Sprintf("%.2f", load) }
