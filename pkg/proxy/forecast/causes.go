package forecast

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/fleet"
)

// Cause is why connections are refused, or why a setting does not work.
type Cause struct {
	// Code is stable: a reason of explain, such as NoTopologyMatch; MissingHints; the rule of the webhook that is broken; or
	// IgnoredAnnotation, if there is no Judge.
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
	// Denied: the setting counts as absent, and the webhook would deny it.
	Denied bool `json:"denied,omitempty"`
}

// Judge returns what is wrong with a Service's settings but was not wrong before; with nil for before it returns
// everything.
type Judge func(before, now *corev1.Service) []Cause

// The codes for a setting that needs hints which are missing, and for an annotation that no rule covers.
const (
	missingHints      = "MissingHints"
	ignoredAnnotation = "IgnoredAnnotation"
)

// refusal is the refused connections to a portion.
type refusal struct {
	portion  int
	part     float64
	refusers fleet.Refusers
}

// causes says why a Service does not behave as its owner wants, the worst first.
func (f *forecaster) causes(now *Outlook, object *corev1.Service, read *model.Service, portions []portion) []Cause {
	var causes []Cause
	for _, refusal := range now.refusals {
		causes = append(causes, refusal.cause(read, portions))
	}
	for i := range portions {
		if sentence := selection.MissingHints(read, portions[i].endpoints); sentence != "" && !read.InternalTrafficLocal {
			causes = append(causes, Cause{Code: missingHints, Sentence: sentence + " " + f.whoseHints(object)})
			break
		}
	}
	return append(causes, f.wrong(object, read)...)
}

// wrong is what is wrong with a Service's settings: what the judge says, or else what any proxy ignores.
func (f *forecaster) wrong(object *corev1.Service, read *model.Service) (causes []Cause) {
	if f.judge != nil {
		causes = f.judge(nil, object)
	}
	if len(causes) > 0 {
		return causes
	}
	for _, finding := range read.Findings {
		if finding.Code.IsAnnotation() {
			causes = append(causes, Cause{
				Code: ignoredAnnotation, Sentence: "The annotation " + finding.Field + " is ignored: " + finding.Reason + ".", Denied: true,
			})
		}
	}
	return causes
}

// cause says who refuses, and why the first of them does.
func (r *refusal) cause(service *model.Service, portions []portion) Cause {
	where, why := "", r.refusers.Why
	switch why.Code {
	case selection.NoEndpoints, selection.NoUsableEndpoints, selection.OnlyVirtualIPs: // anywhere
	default:
		where = fmt.Sprintf(" on %d of %s (%s). On %s", r.refusers.Count, printable.Count(r.refusers.Of, "Node"),
			countedOf(r.refusers.First, r.refusers.Count), r.refusers.First[0])
	}
	part := "All"
	if r.part < 1 {
		part = percent(r.part)
	}
	sentence := fmt.Sprintf("%s of its connections%s are refused%s: %s", part, toPorts(service, portions, r.portion), where, why.Sentence())
	return Cause{Code: string(why.Code), Sentence: sentence}
}

// countedOf lists the first of some names, and counts the others.
func countedOf(first []string, all int) string {
	if len(first) == all {
		return strings.Join(first, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(first, ", "), all-len(first))
}

// toPorts names the ports of a portion, if it is not all of them.
func toPorts(service *model.Service, portions []portion, at int) string {
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
	return " to " + explain.Counted(names)
}

// whoseHints says why endpoints, or some of them, have no hints.
func (f *forecaster) whoseHints(object *corev1.Service) string {
	written := f.slicesOf[nameOf(object)]
	if !slices.ContainsFunc(written, isWrittenByController) {
		return "Who writes these EndpointSlices writes no hints; the EndpointSlice controller of Kubernetes does."
	}
	hinted, whyNone := f.controllers.hint(object, written)
	isHinted := slices.ContainsFunc(hinted, func(slice *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil })
	})
	switch {
	case isHinted:
		return "kube-controller-manager writes them within seconds: it may be older than the setting, or have the feature gate off, " +
			"or what is read here was printed before the Service had the setting."
	case whyNone != "":
		return "kube-controller-manager writes none: " + whyNone + "."
	}
	return "kube-controller-manager writes none, because the endpoints are in no zone: their Nodes need the label " + string(policy.Zone) + "."
}

// noteHints says once for all Services that hints are missing, if several lack them: they may have one cause.
func (r *Report) noteHints() {
	without := 0
	for i := range r.Services {
		if slices.ContainsFunc(r.Services[i].Causes, func(c Cause) bool { return c.Code == missingHints }) {
			without++
		}
	}
	if without > 1 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("%d Services have a setting that works through hints in EndpointSlices, and there are none, or too few.", without))
	}
}

// note says which Nodes are no clients, and which labels Nodes lack.
func (r *Report) note(nodes []model.Node) {
	r.Notes = []string{}
	var others []string
	for i := range nodes {
		if !policy.IsLinux(nodes[i].Labels) {
			others = append(others, nodes[i].Name)
		}
	}
	if slices.Sort(others); len(others) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("Clients on Nodes that do not run Linux (label %s) follow another proxy, and are not "+
			"counted here: %d of %s (%s).", policy.OSLabel, len(others), printable.Count(len(nodes), "Node"), explain.Counted(others)))
	}
	for _, label := range []struct {
		key     policy.Key
		what    string
		without *int
	}{{policy.Zone, "zone", &r.NodesWithoutZone}, {fleet.Region, "region", &r.NodesWithoutRegion}} {
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
			r.Notes = append(r.Notes, fmt.Sprintf("In no %s, without the label %s: %d of %s (%s).",
				label.what, label.key, len(names), printable.Count(len(nodes), "Node"), explain.Counted(names)))
		}
	}
}
