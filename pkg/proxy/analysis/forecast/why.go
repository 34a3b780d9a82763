package forecast

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// EndpointExplanation explains whether a node's connections use one endpoint of a Service port, why, and what would
// have to change.
//
// Its JSON names are an interface: scripts read them.
type EndpointExplanation struct {
	Node         string `json:"node"`    // the client node
	Service      string `json:"service"` // namespace/name
	Port         string `json:"port"`    // the port's name, often empty
	Number       int    `json:"number"`
	Protocol     string `json:"protocol"`
	Family       string `json:"family"`
	Endpoint     string `json:"endpoint"`     // address:port
	Pod          string `json:"pod"`          // if the EndpointSlice names it
	EndpointNode string `json:"endpointNode"` // the endpoint's node
	// Share is the endpoint's part of the node's connections to the ClusterIP, or of the DNS responses: 0 if it is not
	// used.
	Share float64 `json:"share"`
	// Reason is a stable code: of the choice if the endpoint is used, otherwise of the exclusion. Message is the same
	// as a sentence.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Suggestions are the smallest changes after which it would be used, each verified by deciding again; never null,
	// and empty if it is used.
	Suggestions []Suggestion `json:"suggestions"`

	// isUnused is set if its EndpointSlice has no effect on the port.
	isUnused bool
}

// Suggestion is a set of changes that lets the node use the endpoint.
type Suggestion struct {
	// Changes have to be made together; usually there is only one.
	Changes []string `json:"changes"`
	// Share is the endpoint's share after that.
	Share float64 `json:"share"`
	// Objects is the number of changed objects.
	Objects int `json:"objects"`

	steps []candidateChange
}

// ExplainEndpoint explains why a node does not use an endpoint, or which share it has, for all ports and families. The
// target is an endpoint's address, with or without a port, or the name of a pod or node. An error includes a
// suggestion. Rejected Nodes and EndpointSlices are missing in the explanations.
func (c Cluster) ExplainEndpoint(node string, query explain.Query, target string, now time.Time) ([]EndpointExplanation,
	[]model.Finding, error) {
	service := c.Service(query.Service)
	if service == nil {
		return nil, nil, c.NotFound(query.Service)
	}
	parsed, errs := convert.Service(service, c.view)
	if len(errs) > 0 {
		return nil, nil, fmt.Errorf("service %s is invalid: %w", query.Service, errs.ToAggregate())
	}
	explanations, err := c.explainPorts(node, query, target, now)
	_, _, rejected := c.nodeState(now)
	if parsed != nil {
		_, problems := c.readyEndpoints(append(parsed.Clients(), parsed.Name))
		rejected = append(rejected, problems...)
	}
	return explanations, convert.SortProblems(rejected), err
}

func (c Cluster) explainPorts(node string, query explain.Query, target string, now time.Time) ([]EndpointExplanation, error) {
	w := whyQuery{Cluster: c, node: node, service: query.Service, now: now}
	w.pods = c.podsOf(query.Service)
	decisions := w.decide(c)
	if len(decisions) == 0 {
		return nil, fmt.Errorf("service %s leads to no endpoints: %s", query.Service, convert.NotServedReason(c.Service(query.Service), c.view))
	}
	explanations, ports := []EndpointExplanation{}, 0
	for _, decision := range decisions {
		id := model.PortID{Service: query.Service, Port: decision.Port.Name, Protocol: decision.Port.Protocol, Family: decision.Family}
		if !query.Match(id, decision.Port.Port) {
			continue
		}
		ports++
		before := len(explanations)
		for i := range decision.Endpoints {
			if w.matchesTarget(&decision.Endpoints[i], target) {
				explanations = append(explanations, w.explainEndpoint(decision, i))
			}
		}
		if len(explanations) == before {
			explanations = append(explanations, w.unused(decision, target)...)
		}
	}
	switch {
	case ports == 0:
		return nil, fmt.Errorf("service %s has no port %s", query.Service, query.Port)
	case len(explanations) == 0:
		return nil, fmt.Errorf("%s is not an endpoint of %s, a pod of one, or a node with one; it has %s",
			target, query.Service, w.listEndpoints(decisions))
	}
	return explanations, nil
}

// whyQuery is the state of ExplainEndpoint.
type whyQuery struct {
	Cluster
	node    string
	service model.ObjectName
	now     time.Time
	pods    map[netip.Addr]string
}

// podsOf returns the names of the pods behind a Service's endpoints.
func (c Cluster) podsOf(service model.ObjectName) map[netip.Addr]string {
	pods := map[netip.Addr]string{}
	for _, slice := range c.slicesOf[service] {
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			pod := podOf(endpoint)
			if pod == "" || len(endpoint.Addresses) == 0 {
				continue
			}
			if addr, err := netip.ParseAddr(endpoint.Addresses[0]); err == nil {
				pods[addr] = pod
			}
		}
	}
	return pods
}

func (w *whyQuery) matchesTarget(endpoint *model.PortEndpoint, target string) bool {
	if addr, err := netip.ParseAddr(target); err == nil {
		return endpoint.Addr.Addr() == addr
	}
	if addr, err := netip.ParseAddrPort(target); err == nil {
		return endpoint.Addr == addr
	}
	return target != "" && (w.pods[endpoint.Addr.Addr()] == target || endpoint.Node == target)
}

// listEndpoints lists some endpoints.
func (w *whyQuery) listEndpoints(decisions []selection.Decision) string {
	var names []string
	for i := range decisions[0].Endpoints {
		endpoint := &decisions[0].Endpoints[i]
		names = append(names, fmt.Sprintf("%s on %s", explain.EndpointName(endpoint.Addr), cmp.Or(endpoint.Node, "no node")))
	}
	if len(names) == 0 {
		return "no endpoints"
	}
	return explain.ListOrCount(names)
}

// decide decides about the Service on the node, with the objects of a cluster.
func (w *whyQuery) decide(c Cluster) []selection.Decision {
	object := c.Service(w.service)
	parsed, errs := convert.Service(object, c.view)
	if parsed == nil || len(errs) > 0 {
		return nil
	}
	_, change, _ := c.nodeState(w.now)
	change.Slices = map[model.ObjectName]*model.EndpointSlice{}
	for _, service := range append(parsed.Clients(), parsed.Name) {
		converted, _ := c.convertSlices(c.slicesOf[service])
		for _, slice := range converted {
			change.Slices[slice.Name] = slice
		}
	}
	change.Services = map[model.ObjectName]*model.Service{parsed.Name: parsed}
	if demand := c.demands[parsed.Name]; demand != nil {
		change.Demands, change.DemandState = map[model.ObjectName]*model.Demand{parsed.Name: demand}, new(model.DemandActive)
	}
	cluster := model.NewCluster(w.node)
	cluster.Apply(change.Merge(model.Change{Demotions: c.demotions}))
	return selection.NewPlanner(cluster).Decide(parsed.Name, model.Families)
}

// newExplanation returns an explanation about a port, to be completed.
func (w *whyQuery) newExplanation(decision selection.Decision) EndpointExplanation {
	explanation := EndpointExplanation{
		Node: w.node, Service: w.service.String(), Port: decision.Port.Name, Number: int(decision.Port.Port),
		Family: decision.Family.String(), Suggestions: []Suggestion{},
	}
	if !decision.ForAddresses {
		explanation.Protocol = decision.Port.Protocol.String()
	}
	return explanation
}

// explainEndpoint explains one endpoint of one decision.
func (w *whyQuery) explainEndpoint(decision selection.Decision, i int) EndpointExplanation {
	endpoint := &decision.Endpoints[i]
	explanation := w.newExplanation(decision)
	explanation.Endpoint, explanation.EndpointNode, explanation.Pod = explain.EndpointName(endpoint.Addr), endpoint.Node,
		w.pods[endpoint.Addr.Addr()]
	choice, _ := decision.Selection.ClusterIP()
	explanation.Reason, explanation.Message = string(choice.Reason.Code), choice.Reason.Sentence()
	if share := shareOf(decision, endpoint.Addr); share > 0 {
		explanation.Share = explain.Rounded(share)
		return explanation
	}
	for _, exclusion := range decision.Exclusions() {
		if exclusion.Endpoint == endpoint.Addr {
			explanation.Reason, explanation.Message = string(exclusion.Reason.Code), exclusion.Reason.Sentence()
		}
	}
	explanation.Suggestions = w.suggestChanges(decision, endpoint)
	return explanation
}

// shareOf returns the part of the node's connections to the ClusterIP that an endpoint gets.
func shareOf(decision selection.Decision, endpoint netip.AddrPort) float64 {
	choice, outcome := decision.Selection.ClusterIP()
	index := slices.IndexFunc(choice.Endpoints, func(chosen model.PortEndpoint) bool { return chosen.Addr == endpoint })
	switch {
	case outcome != selection.Balance || index < 0:
		return 0
	case choice.Share != nil:
		position := slices.IndexFunc(decision.Endpoints, func(e model.PortEndpoint) bool { return e.Addr == endpoint })
		return float64(choice.Share.Fractions[position]) / balance.One
	}
	return 1 / float64(len(choice.Endpoints))
}

// maxSuggestions limits the suggestions.
const maxSuggestions = 5

// suggestChanges returns the smallest changes: the needed ones and a single one that is then enough; else all changes,
// without those that turn out to be unnecessary.
func (w *whyQuery) suggestChanges(decision selection.Decision, endpoint *model.PortEndpoint) []Suggestion {
	all := w.steps(decision, endpoint)
	needed := slices.DeleteFunc(slices.Clone(all), func(s candidateChange) bool { return !s.isNeeded })
	bases := [][]candidateChange{nil}
	for i := range needed {
		bases = append(bases, needed[i:i+1])
	}
	if len(needed) > 1 {
		bases = append(bases, needed)
	}
	for _, base := range bases {
		var found []Suggestion
		if share := w.shareAfter(base, decision, endpoint.Addr); share > 0 {
			found = append(found, suggestionOf(base, share))
		}
		for _, candidate := range all {
			if len(found) > 0 && len(found[0].Changes) == len(base) || candidate.isNeeded {
				continue
			}
			steps := append(slices.Clone(base), candidate)
			if share := w.shareAfter(steps, decision, endpoint.Addr); share > 0 {
				found = append(found, suggestionOf(steps, share))
			}
		}
		if len(found) > 0 {
			slices.SortStableFunc(found, func(a, b Suggestion) int { return cmp.Compare(a.Objects, b.Objects) })
			return found[:min(len(found), maxSuggestions)]
		}
	}
	for i := 0; i < len(all); {
		without := slices.Delete(slices.Clone(all), i, i+1)
		if w.shareAfter(without, decision, endpoint.Addr) > 0 {
			all = without
		} else {
			i++
		}
	}
	if share := w.shareAfter(all, decision, endpoint.Addr); share > 0 {
		return []Suggestion{suggestionOf(all, share)}
	}
	return []Suggestion{}
}

func suggestionOf(steps []candidateChange, share float64) Suggestion {
	suggestion := Suggestion{Share: explain.Rounded(share), steps: steps}
	for i := range steps {
		suggestion.Changes = append(suggestion.Changes, steps[i].sentence)
		suggestion.Objects += steps[i].objects
	}
	return suggestion
}

// shareAfter decides again after some steps, and returns the endpoint's share of the same port.
func (w *whyQuery) shareAfter(steps []candidateChange, reference selection.Decision, endpoint netip.AddrPort) float64 {
	changes := make([]Change, len(steps))
	for i := range steps {
		changes[i] = steps[i].change
	}
	after, err := w.Apply(changes)
	if err != nil {
		return 0
	}
	for _, decision := range w.decide(after) {
		if decision.Port == reference.Port && decision.Family == reference.Family && decision.ForAddresses == reference.ForAddresses {
			return shareOf(decision, endpoint)
		}
	}
	return 0
}

// WhyText writes explanations for people.
func WhyText(w io.Writer, explanations []EndpointExplanation) error {
	p := printer{w: w}
	for i, explanation := range explanations {
		if i > 0 {
			p.printf("\n")
		}
		port := strings.TrimSpace(explanation.Port + " " + fmt.Sprintf("%d/%s", explanation.Number, explanation.Protocol))
		if explanation.Protocol == "" {
			port = "its addresses"
		}
		where := cmp.Or(explanation.EndpointNode, "no known node")
		if explanation.Pod != "" {
			where = "pod " + explanation.Pod + " on " + where
		}
		p.printf("%s %s %s, connections of %s to %s (%s)\n", explanation.Service, port, explanation.Family, explanation.Node,
			explanation.Endpoint, where)
		if explanation.Share > 0 {
			p.printf("  It gets %s of them. %s [%s]\n", percent(explanation.Share), explanation.Message, explanation.Reason)
			continue
		}
		p.printf("  It gets none. %s [%s]\n", explanation.Message, explanation.Reason)
		for j, suggestion := range explanation.Suggestions {
			if j == 0 {
				p.printf("  It would get some after one of these changes:\n")
			}
			p.printf("  - %s (%s)\n", strings.Join(suggestion.Changes, ", and "), percent(suggestion.Share))
		}
		if len(explanation.Suggestions) == 0 && !explanation.isUnused {
			p.printf("  No change was found after which it would get some.\n")
		}
	}
	return p.err
}

// endpointsIn calls do for each endpoint in copies of the slices, and returns the copies.
func endpointsIn(endpointSlices []*discoveryv1.EndpointSlice, do func(*discoveryv1.Endpoint)) []*discoveryv1.EndpointSlice {
	var changed []*discoveryv1.EndpointSlice
	for _, slice := range endpointSlices {
		copied := *slice
		copied.Endpoints = slices.Clone(slice.Endpoints)
		for i := range copied.Endpoints {
			do(&copied.Endpoints[i])
		}
		changed = append(changed, &copied)
	}
	return changed
}
