package forecast

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/simulate"
)

// Problem is why connections are refused, or why a setting does not work.
type Problem struct {
	// Code is stable: a reason of explain, such as NoTopologyMatch; MissingHints; BoundMissed; the violated rule of the
	// webhook; or IgnoredAnnotation, if there is no RuleChecker.
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
	// Denied reports whether the setting counts as absent, and would be denied by the webhook.
	Denied bool `json:"denied,omitempty"`
}

// RuleChecker returns the problems of a Service's settings that are new since before; if before is nil, all of them.
type RuleChecker func(before, now *corev1.Service) []Problem

// The codes for a setting without the hints that it needs, for a load bound that an endpoint exceeds, and for an
// annotation that no rule covers.
const (
	missingHints      = "MissingHints"
	boundMissed       = "BoundMissed"
	ignoredAnnotation = "IgnoredAnnotation"
)

// refusedShare is the share of the connections to a group's ports that is refused.
type refusedShare struct {
	group    int
	share    float64
	refusers simulate.RefusingNodes
}

// causes returns why a Service does not work as configured, the worst first.
func (f *forecaster) causes(now *Projection, object *corev1.Service, parsed *model.Service, groups []endpointGroup) []Problem {
	var causes []Problem
	for _, refusal := range now.refusedShares {
		causes = append(causes, refusal.cause(parsed, groups))
	}
	for i := range groups {
		if sentence := selection.MissingHints(parsed, groups[i].endpoints); sentence != "" && !parsed.InternalTrafficLocal {
			causes = append(causes, Problem{Code: missingHints, Sentence: sentence + " " + f.missingHintsReason(object, parsed)})
			break
		}
	}
	return append(causes, f.checkSettings(object, parsed)...)
}

// demandTexts describes each source of demand.
var demandTexts = map[string]string{
	string(simulate.Labels):   "one client per Node, or the weight in its label " + policy.DemandLabel,
	string(simulate.Clients):  "the clients that the Service names",
	string(simulate.Measured): "the demand in its ServiceDemand",
	string(simulate.Given):    "the demand in the file of --demand",
}

// boundProblems returns why the expected load of an endpoint exceeds the Service's load bound; empty if none does. It
// returns none in a comparison, where loads are not multiples of the mean that a load bound applies to.
func (f *forecaster) boundProblems(s *Service, parsed *model.Service) []Problem {
	now, bound := &s.Projections[0], parsed.Topology.MaxLoad
	if now.PlannedWith == "" || now.keepsBound(bound) || f.clientsOf != nil {
		return nil
	}
	var reason string
	switch {
	case now.source != now.PlannedWith && (s.asMeasured == nil || s.asMeasured.keepsBound(bound)):
		reason = "the bound is planned with " + demandTexts[now.PlannedWith] + ", and this is a forecast with " + demandTexts[now.source]
	case !slices.Contains(parsed.Topology.Keys, policy.AnyNode):
		reason = "its topology keys allow some clients no other endpoints"
	default:
		reason = "the remaining endpoints cannot keep it"
	}
	return []Problem{{Code: boundMissed, Sentence: fmt.Sprintf(
		"The expected load of %s is %s times the mean, more than the load bound of %s allows: %s.",
		now.Busiest.Endpoint, times(now.Busiest.Load), policy.FormatMaxLoad(bound), reason)}}
}

// checkSettings returns the problems of a Service's settings: those of the RuleChecker, or else what any proxy ignores.
func (f *forecaster) checkSettings(object *corev1.Service, parsed *model.Service) (causes []Problem) {
	if f.checker != nil {
		causes = f.checker(nil, object)
	}
	if len(causes) > 0 {
		return causes
	}
	for _, finding := range parsed.Findings {
		if finding.Code.IsAnnotation() {
			causes = append(causes, Problem{
				Code: ignoredAnnotation, Sentence: "The annotation " + finding.Field + " is ignored: " + finding.Reason + ".", Denied: true,
			})
		}
	}
	return causes
}

// cause describes which nodes refuse, and why the first of them does.
func (r *refusedShare) cause(service *model.Service, groups []endpointGroup) Problem {
	where, reason := "", r.refusers.Reason
	switch reason.Code {
	case selection.NoEndpoints, selection.NoUsableEndpoints: // on all nodes
	default:
		where = fmt.Sprintf(": those from %d of %s (%s). On %s", r.refusers.Count, sanitize.Count(r.refusers.WithDemand, "Node"),
			listFirst(r.refusers.First, r.refusers.Count), r.refusers.First[0])
	}
	share := "All"
	if r.share < 1 {
		share = percent(r.share)
	}
	sentence := fmt.Sprintf("%s of its connections%s are refused%s: %s", share, toPorts(service, groups, r.group), where, reason.Sentence())
	return Problem{Code: string(reason.Code), Sentence: sentence}
}

// listFirst lists the first of some names, and counts the others.
func listFirst(first []string, all int) string {
	if len(first) == all {
		return strings.Join(first, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(first, ", "), all-len(first))
}

// toPorts names the ports of a group, if there are others.
func toPorts(service *model.Service, groups []endpointGroup, index int) string {
	if len(groups) == 1 {
		return ""
	}
	var names []string
	for _, port := range groups[index].ports {
		name := fmt.Sprintf("%d/%s", port.port.Port, port.port.Protocol)
		switch {
		case service.IsHeadless:
			name = port.family.String()
		case len(service.ClusterIPs) > 1:
			name += " over " + port.family.String()
		}
		names = append(names, name)
	}
	return " to " + explain.ListOrCount(names)
}

// missingHintsReason returns why endpoints, or some of them, have no hints.
func (f *forecaster) missingHintsReason(object *corev1.Service, parsed *model.Service) string {
	endpointSlices := f.slicesOf[nameOf(object)]
	if !slices.ContainsFunc(endpointSlices, isWrittenByController) {
		return "The writer of these EndpointSlices sets no hints; the EndpointSlice controller of Kubernetes does."
	}
	hinted, noHintsReason := f.controller.hint(object, endpointSlices)
	converted, _ := f.convertSlices(hinted)
	groups := f.endpointGroups(parsed, converted)
	index := slices.IndexFunc(groups, func(p endpointGroup) bool { return selection.MissingHints(parsed, p.endpoints) != "" })
	if index < 0 {
		return "kube-controller-manager writes them within seconds: it may be older than the setting, or have the feature gate off, " +
			"or these objects were read before the Service had the setting."
	}
	sentence := "kube-controller-manager writes none"
	if noHintsReason != "" {
		sentence += ": " + noHintsReason
	}
	if noZone := selection.MissingZone(parsed, groups[index].endpoints, selection.NodeView{Labels: f.simulator.Labels}); noZone != "" {
		sentence += ". " + strings.TrimSuffix(noZone, ".")
	}
	return sentence + "."
}

// addHintNotes adds one note that hints are missing, if several Services lack them: they may have one cause.
func (r *Report) addHintNotes() {
	without := 0
	for i := range r.Services {
		if slices.ContainsFunc(r.Services[i].Causes, func(c Problem) bool { return c.Code == missingHints }) {
			without++
		}
	}
	if without > 1 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("%d Services have a setting that works through hints in EndpointSlices, but there are none, or too few.", without))
	}
}

// addLabelNotes adds notes about Nodes that are no clients, and about labels that Nodes lack.
func (r *Report) addLabelNotes(nodes []model.Node) {
	r.Notes = []string{}
	var others []string
	for i := range nodes {
		if !policy.IsLinux(nodes[i].Labels) {
			others = append(others, nodes[i].Name)
		}
	}
	if slices.Sort(others); len(others) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("Clients on Nodes that do not run Linux (label %s) use another proxy, and are not "+
			"counted here: %d of %s (%s).", policy.OSLabel, len(others), sanitize.Count(len(nodes), "Node"), explain.ListOrCount(others)))
	}
	for _, label := range []struct {
		key     policy.Key
		what    string
		without *int
	}{{policy.Zone, "zone", &r.NodesWithoutZone}, {simulate.Region, "region", &r.NodesWithoutRegion}} {
		var names []string
		for i := range nodes {
			if nodes[i].Labels[string(label.key)] == "" {
				names = append(names, nodes[i].Name)
			}
		}
		switch *label.without = len(names); {
		case len(names) == len(nodes):
			r.Notes = append(r.Notes, fmt.Sprintf("No Node has the label %s, so it is unknown what stays in a %s.", label.key, label.what))
		case len(names) > 0:
			slices.Sort(names)
			r.Notes = append(r.Notes, fmt.Sprintf("In no %s, because the label %s is missing: %d of %s (%s).",
				label.what, label.key, len(names), sanitize.Count(len(nodes), "Node"), explain.ListOrCount(names)))
		}
	}
}
