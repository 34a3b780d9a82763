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
	"github.com/vicinity-proxy/vicinity/pkg/selection/fleet"
)

// What makes a change worthwhile: this much more in the zone, or this much less on the busiest endpoint.
const (
	worthZone = 0.05
	worthLoad = 0.25
)

// advise recommends a setting, if one would improve anything. A setting that protects the endpoints as well as the
// bound, and needs no proxy of ours, comes first. An owner who has a bound has chosen it, and gets no advice against
// it, but perhaps the one to have it planned with what was measured. A setting without effect needs mending, not another
// one beside it: Causes says how.
func (f *forecaster) advise(s *Service, object *corev1.Service, read *model.Service) *Advice {
	now, field, bounded := s.outlook(Now), s.outlook(policy.PreferSameZone), s.bounded()
	if s.asMeasured != nil {
		return s.adviseMeasured(object)
	}
	if field == nil || bounded == nil || read.InternalTrafficLocal || read.IsHeadless && len(read.Topology.Keys) == 0 ||
		read.Topology.MaxLoad > 0 || slices.ContainsFunc(s.Causes, func(c Cause) bool { return c.Denied }) {
		return nil
	}
	limit, bound := float64(f.boundOf(bounded.Setting))/100, policy.FormatMaxLoad(f.boundOf(bounded.Setting))
	if strings.HasSuffix(bounded.Setting, measured) {
		bound += ", planned as its ServiceDemand says,"
	}
	hasOwnKeys := len(read.Topology.Keys) > 0
	isGain := func(o *Outlook) bool { return o.Note == "" && o.Zone-now.Zone >= worthZone && o.Refused <= now.Refused }
	set := func(setting string) string {
		changed := f.settings[slices.IndexFunc(f.settings, func(s Setting) bool { return s.Name == setting })].apply(object)
		return difference(object, changed)
	}
	switch {
	case !hasOwnKeys && isGain(field) && field.Busiest.Load <= max(limit, now.Busiest.Load):
		if isDistributed(object) { // and has no hints
			return nil
		}
		return &Advice{
			Setting: field.Setting,
			Sentence: fmt.Sprintf("%s keeps %s in the zone instead of %s, and no endpoint expects more than %s times the mean.",
				field.Setting, percent(field.Zone), percent(now.Zone), times(field.Busiest.Load)),
			Set: set(field.Setting),
		}
	case isGain(bounded) && bounded.Busiest.Load <= max(limit, now.Busiest.Load)+worthLoad:
		sentence := fmt.Sprintf("A bound of %s keeps %s in the zone instead of %s, and no endpoint expects more than %s times the mean",
			bound, percent(bounded.Zone), percent(now.Zone), times(bounded.Busiest.Load))
		if field.Note == "" && field.Busiest.Load > limit {
			sentence += fmt.Sprintf("; %s would send %s times the mean to %s", field.Setting, times(field.Busiest.Load), field.Busiest.Endpoint)
		}
		return &Advice{bounded.Setting, sentence + ".", set(bounded.Setting)}
	case bounded.Note == "" && now.Busiest.Load-bounded.Busiest.Load >= worthLoad && bounded.Refused <= now.Refused:
		return &Advice{
			bounded.Setting,
			fmt.Sprintf("%s expects %s times the mean; with a bound of %s %s.", now.Busiest.Endpoint, times(now.Busiest.Load), bound,
				joined("no endpoint expects more than "+times(bounded.Busiest.Load)+" times", staysInZone(bounded, now))),
			set(bounded.Setting),
		}
	}
	return nil
}

// adviseMeasured recommends to have the bound that there is planned with what was measured, if that improves anything.
func (s *Service) adviseMeasured(object *corev1.Service) *Advice {
	now, then := s.outlook(Now), s.asMeasured
	isNearer := then.Zone-now.Zone >= worthZone && then.Busiest.Load < now.Busiest.Load+worthLoad
	isCalmer := now.Busiest.Load-then.Busiest.Load >= worthLoad
	if then.Refused > now.Refused || !isNearer && !isCalmer {
		return nil
	}
	changed := *object
	changed.Annotations = withMeasured(object)
	return &Advice{
		Setting: policy.Measured,
		Sentence: fmt.Sprintf("With its bound planned as its ServiceDemand says, %s.",
			joined(instead("the busiest endpoint expects %s times the mean", times(then.Busiest.Load), times(now.Busiest.Load)),
				staysInZone(then, now))),
		Set: difference(object, &changed),
	}
}

// staysInZone says how much stays in the zone instead of what stays now; empty if that is the same.
func staysInZone(then, now *Outlook) string {
	return instead("%s stay in the zone", percent(then.Zone), percent(now.Zone))
}

// instead says a value, and which one it replaces; empty if the two are the same as they are printed.
func instead(format, then, now string) string {
	if then == now {
		return ""
	}
	return fmt.Sprintf(format, then) + " instead of " + now
}

// joined joins two clauses, of which either may be empty.
func joined(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + ", and " + second
}

// isDistributed reports whether a Service has a trafficDistribution that says something.
func isDistributed(service *corev1.Service) bool {
	return service.Spec.TrafficDistribution != nil && policy.DistributionKeys(*service.Spec.TrafficDistribution) != nil &&
		!policy.ModeOf(service.Annotations).IsAuto()
}

// difference is what to write into a Service so that it has the settings of another one: a patch in YAML, in which null
// removes.
func difference(from, to *corev1.Service) string {
	var set strings.Builder
	for _, annotation := range slices.Concat(policy.OwnAnnotations, policy.ModeAnnotations) {
		was, had := from.Annotations[annotation]
		value, has := to.Annotations[annotation]
		if had == has && was == value {
			continue
		}
		if set.Len() == 0 {
			set.WriteString("metadata:\n  annotations:\n")
		}
		written := "null"
		if has {
			written = strconv.Quote(value)
		}
		set.WriteString("    " + annotation + ": " + written + "\n")
	}
	if was, is := from.Spec.TrafficDistribution, to.Spec.TrafficDistribution; ptr.Deref(was, "") != ptr.Deref(is, "") {
		set.WriteString("spec:\n  trafficDistribution: " + ptr.Deref(is, "null") + "\n")
	}
	return set.String()
}

func (f *forecaster) boundOf(name string) uint64 {
	for _, setting := range f.settings {
		if setting.Name == name {
			return setting.bound
		}
	}
	return 0
}

// outlook returns the outlook under a setting; nil if it was not asked for.
func (s *Service) outlook(setting string) *Outlook {
	for i := range s.Outlooks {
		if s.Outlooks[i].Setting == setting {
			return &s.Outlooks[i]
		}
	}
	return nil
}

// bounded returns the outlook under the first bound, as planned with what was measured if that is what is asked; nil if
// none was asked for.
func (s *Service) bounded() *Outlook {
	if s.DemandSource == string(fleet.Measured) {
		for i := range s.Outlooks {
			if strings.HasSuffix(s.Outlooks[i].Setting, measured) {
				return &s.Outlooks[i]
			}
		}
	}
	for i := range s.Outlooks {
		if strings.HasSuffix(s.Outlooks[i].Setting, "%") {
			return &s.Outlooks[i]
		}
	}
	return nil
}

// percent writes a part of 1. It never rounds to all or to nothing.
func percent(part float64) string {
	switch {
	case part == 0, part == 1:
		return fmt.Sprintf("%.0f %%", part*100)
	case part < 0.001:
		return "< 0.1 %"
	case part > 0.999:
		return "> 99.9 %"
	case part >= 0.1 && part <= 0.9:
		return fmt.Sprintf("%.0f %%", part*100)
	}
	return fmt.Sprintf("%.1f %%", part*100)
}

// times writes a multiple.
func times(load float64) string { return fmt.Sprintf("%.2f", load) }
