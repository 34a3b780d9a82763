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

// refusedShare is the refused connections to a portion.
type refusedShare struct {
	portion  int
	part     float64
	refusers simulate.RefusingNodes
}

// causes returns why a Service does not work as configured, the worst first.
func (f *forecaster) causes(now *Projection, object *corev1.Service, read *model.Service, portions []endpointGroup) []Problem {
	var causes []Problem
	for _, refusal := range now.refusedShares {
		causes = append(causes, refusal.cause(read, portions))
	}
	for i := range portions {
		if sentence := selection.MissingHints(read, portions[i].endpoints); sentence != "" && !read.InternalTrafficLocal {
			causes = append(causes, Problem{Code: missingHints, Sentence: sentence + " " + f.missingHintsReason(object, read)})
			break
		}
	}
	return append(causes, f.checkSettings(object, read)...)
}

// demandOf describes each source of demand.
var demandOf = map[string]string{
	string(simulate.Labels):   "one client for each Node, or as its label " + policy.DemandLabel + " says",
	string(simulate.Clients):  "the clients that the Service names",
	string(simulate.Measured): "the demand in its ServiceDemand",
	string(simulate.Given):    "the demand in the file of --demand",
}

// boundMissed returns why an endpoint expects more than the Service's bound; empty if none does. In a comparison loads
// are not multiples of the mean that a bound applies to.
func (f *forecaster) boundMissed(s *Service, read *model.Service) []Problem {
	now, bound := &s.Outlooks[0], read.Topology.MaxLoad
	if now.PlannedWith == "" || now.keeps(bound) || f.clientsOf != nil {
		return nil
	}
	var why string
	switch {
	case now.source != now.PlannedWith && (s.asMeasured == nil || s.asMeasured.keeps(bound)):
		why = "the bound is planned with " + demandOf[now.PlannedWith] + ", and this is a forecast with " + demandOf[now.source]
	case !slices.Contains(read.Topology.Keys, policy.AnyNode):
		why = "its topology keys allow some clients no other endpoints"
	default:
		why = "the remaining endpoints cannot keep it"
	}
	return []Problem{{Code: boundMissed, Sentence: fmt.Sprintf("%s expects %s times the mean, more than its bound of %s allows: %s.",
		now.Busiest.Endpoint, times(now.Busiest.Load), policy.FormatMaxLoad(bound), why)}}
}

// checkSettings returns the problems of a Service's settings: those of the RuleChecker, or else what any proxy ignores.
func (f *forecaster) checkSettings(object *corev1.Service, read *model.Service) (causes []Problem) {
	if f.checker != nil {
		causes = f.checker(nil, object)
	}
	if len(causes) > 0 {
		return causes
	}
	for _, finding := range read.Findings {
		if finding.Code.IsAnnotation() {
			causes = append(causes, Problem{
				Code: ignoredAnnotation, Sentence: "The annotation " + finding.Field + " is ignored: " + finding.Reason + ".", Denied: true,
			})
		}
	}
	return causes
}

// cause describes which nodes refuse, and why the first of them does.
func (r *refusedShare) cause(service *model.Service, portions []endpointGroup) Problem {
	where, why := "", r.refusers.Reason
	switch why.Code {
	case selection.NoEndpoints, selection.NoUsableEndpoints: // on all nodes
	default:
		where = fmt.Sprintf(" on %d of %s (%s). On %s", r.refusers.Count, sanitize.Count(r.refusers.Of, "Node"),
			countedOf(r.refusers.First, r.refusers.Count), r.refusers.First[0])
	}
	part := "All"
	if r.part < 1 {
		part = percent(r.part)
	}
	sentence := fmt.Sprintf("%s of its connections%s are refused%s: %s", part, toPorts(service, portions, r.portion), where, why.Sentence())
	return Problem{Code: string(why.Code), Sentence: sentence}
}

// countedOf lists the first of some names, and counts the others.
func countedOf(first []string, all int) string {
	if len(first) == all {
		return strings.Join(first, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(first, ", "), all-len(first))
}

// toPorts names the ports of a portion, if it is not all of them.
func toPorts(service *model.Service, portions []endpointGroup, at int) string {
	if len(portions) == 1 {
		return ""
	}
	var names []string
	for _, port := range portions[at].ports {
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
func (f *forecaster) missingHintsReason(object *corev1.Service, read *model.Service) string {
	written := f.slicesOf[nameOf(object)]
	if !slices.ContainsFunc(written, isWrittenByController) {
		return "The writer of these EndpointSlices sets no hints; the EndpointSlice controller of Kubernetes does."
	}
	hinted, whyNone := f.controllers.hint(object, written)
	converted, _ := f.slicesIn(hinted)
	portions := f.portions(read, converted)
	lacking := slices.IndexFunc(portions, func(p endpointGroup) bool { return selection.MissingHints(read, p.endpoints) != "" })
	if lacking < 0 {
		return "kube-controller-manager writes them within seconds: it may be older than the setting, or have the feature gate off, " +
			"or these objects were read before the Service had the setting."
	}
	sentence := "kube-controller-manager writes none"
	if whyNone != "" {
		sentence += ": " + whyNone
	}
	if noZone := selection.MissingZone(read, portions[lacking].endpoints, selection.NodeView{Labels: f.fleet.Labels}); noZone != "" {
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
