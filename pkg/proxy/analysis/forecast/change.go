package forecast

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// Change is a hypothetical change of a cluster.
type Change interface {
	// apply applies the change to a cluster. It may change the cluster's lists and maps, but not its objects. It marks
	// the Services whose hints the controller would rewrite.
	apply(c *Cluster, rehinted map[model.ObjectName]bool) error
}

// changeFunc is a Change that only ExplainEndpoint uses.
type changeFunc func(c *Cluster, rehinted map[model.ObjectName]bool) error

func (f changeFunc) apply(c *Cluster, rehinted map[model.ObjectName]bool) error {
	return f(c, rehinted)
}

// Apply returns the cluster after some changes, one after the other, with the hints that the EndpointSlice controller
// would have written by then.
func (c Cluster) Apply(changes []Change) (Cluster, error) {
	after := c
	after.nodes, after.services, after.slicesOf = slices.Clone(c.nodes), slices.Clone(c.services), maps.Clone(c.slicesOf)
	rehinted := map[model.ObjectName]bool{}
	for _, change := range changes {
		if err := change.apply(&after, rehinted); err != nil {
			return Cluster{}, err
		}
	}
	controller := newHintController(after.nodes)
	for name := range rehinted {
		after.slicesOf[name], _ = controller.hint(after.Service(name), after.slicesOf[name])
	}
	return after, nil
}

// WithoutNodes removes nodes, with the endpoints on them.
type WithoutNodes struct{ Selector labels.Selector }

// ParseWithoutNodes parses a label selector.
func ParseWithoutNodes(text string) (WithoutNodes, error) {
	selector, err := labels.Parse(text)
	return WithoutNodes{selector}, err
}

func (w WithoutNodes) apply(c *Cluster, rehinted map[model.ObjectName]bool) error {
	removedNodes := map[string]bool{}
	for _, node := range c.nodes {
		if w.Selector.Matches(labels.Set(node.Labels)) {
			removedNodes[node.Name] = true
		}
	}
	if len(removedNodes) == 0 {
		return fmt.Errorf("--without-nodes %s matches none of the %d Nodes", w.Selector, len(c.nodes))
	}
	if len(removedNodes) == len(c.nodes) {
		return fmt.Errorf("--without-nodes %s matches all %d Nodes", w.Selector, len(c.nodes))
	}
	c.nodes = slices.DeleteFunc(c.nodes, func(node *corev1.Node) bool { return removedNodes[node.Name] })
	for _, service := range c.services {
		name := nameOf(service)
		kept, removed := withoutEndpoints(c.slicesOf[name], func(e *discoveryv1.Endpoint) bool {
			return e.NodeName != nil &&
				removedNodes[*e.NodeName]
		})
		if removed {
			c.slicesOf[name] = kept
		}
		if removed || policy.ModeOf(service.Annotations).IsAuto() {
			rehinted[name] = true
		}
	}
	return nil
}

// withoutEndpoints returns slices without some of their endpoints, and whether there were any of those.
func withoutEndpoints(
	endpointSlices []*discoveryv1.EndpointSlice, isRemoved func(*discoveryv1.Endpoint) bool,
) (kept []*discoveryv1.EndpointSlice, removed bool) {
	for _, slice := range endpointSlices {
		changed := *slice
		changed.Endpoints = nil
		for i := range slice.Endpoints {
			if !isRemoved(&slice.Endpoints[i]) {
				changed.Endpoints = append(changed.Endpoints, slice.Endpoints[i])
			}
		}
		removed = removed || len(changed.Endpoints) < len(slice.Endpoints)
		kept = append(kept, &changed)
	}
	return kept, removed
}

// Evacuate evacuates nodes: those of a zone, or those that match a selector.
type Evacuate struct {
	Zone     string
	Selector labels.Selector // nil for a zone
}

// ParseEvacuate parses the name of a zone, or a label selector.
func ParseEvacuate(text string) (Evacuate, error) {
	if text == "" { // it would mean all Nodes without a zone
		return Evacuate{}, errors.New("the name of a zone, or a selector, is missing")
	}
	if !strings.ContainsAny(text, "=!,()") {
		return Evacuate{Zone: text}, nil
	}
	selector, err := labels.Parse(text)
	return Evacuate{Selector: selector}, err
}

func (e Evacuate) apply(c *Cluster, _ map[model.ObjectName]bool) error {
	matches := func(node *corev1.Node) bool {
		if e.Selector != nil {
			return e.Selector.Matches(labels.Set(node.Labels))
		}
		return node.Labels[string(policy.Zone)] == e.Zone
	}
	switch {
	case c.labelNodes(matches, policy.EvacuateLabel, "true") > 0:
		return nil
	case e.Selector != nil:
		return fmt.Errorf("--evacuate %s matches none of the %d Nodes", e.Selector, len(c.nodes))
	}
	return fmt.Errorf("--evacuate %s: no Node is in that zone; %s", e.Zone, c.zonesText())
}

// zonesText lists the existing zones.
func (c *Cluster) zonesText() string {
	zones := map[string]bool{}
	for _, node := range c.nodes {
		if zone := node.Labels[string(policy.Zone)]; zone != "" {
			zones[zone] = true
		}
	}
	if len(zones) == 0 {
		return "no Node has the label " + string(policy.Zone)
	}
	return "the zones are " + strings.Join(slices.Sorted(maps.Keys(zones)), ", ")
}

// TrafficDistribution is the key of an Annotate that sets the field spec.trafficDistribution.
const TrafficDistribution = "trafficDistribution"

// Annotate sets an annotation of a Service, or its field trafficDistribution; an empty value removes it.
type Annotate struct {
	Service    model.ObjectName
	Key, Value string
}

// ParseAnnotate parses "NAMESPACE/NAME KEY=VALUE".
func ParseAnnotate(text string) (Annotate, error) {
	name, setting, found := strings.Cut(strings.TrimSpace(text), " ")
	key, value, assigned := strings.Cut(strings.TrimSpace(setting), "=")
	query, err := explain.ParseQuery(name, "")
	switch {
	case !found, !assigned, key == "":
		return Annotate{}, fmt.Errorf(`%q is not "NAMESPACE/NAME KEY=VALUE", as in "shop/web %s=120%%"`, text, policy.MaxLoadAnnotation)
	case err != nil:
		return Annotate{}, err
	case query.Port != "":
		return Annotate{}, fmt.Errorf("%q names a port; annotations are for the whole Service", text)
	}
	annotate := Annotate{query.Service, strings.TrimSpace(key), strings.TrimSpace(value)}
	if annotate.Key == TrafficDistribution && annotate.Value != "" && policy.DistributionKeys(annotate.Value) == nil {
		return Annotate{}, unknownDistribution(annotate.Value)
	}
	return annotate, nil
}

// unknownDistribution returns an error for a value that an API server would reject.
func unknownDistribution(value string) error {
	known := []string{policy.PreferSameZone, policy.PreferSameNode, policy.PreferClose}
	if suggestion := policy.Suggest(value, known...); suggestion != "" {
		return fmt.Errorf("%q is not a value of spec.trafficDistribution; did you mean %s?", value, suggestion)
	}
	return fmt.Errorf("%q is not a value of spec.trafficDistribution, which may be %s", value, strings.Join(known, ", "))
}

func (a Annotate) apply(c *Cluster, rehinted map[model.ObjectName]bool) error {
	rehinted[a.Service] = true
	return c.changeService(a.Service, func(service *corev1.Service) {
		switch {
		case a.Key != TrafficDistribution:
			service.Annotations = withEntry(service.Annotations, a.Key, a.Value)
		case a.Value == "":
			service.Spec.TrafficDistribution = nil
		default:
			service.Spec.TrafficDistribution = &a.Value
		}
	})
}

// changeService replaces a Service with a changed copy.
func (c *Cluster) changeService(name model.ObjectName, change func(*corev1.Service)) error {
	index, found := c.index(name)
	if !found {
		return c.NotFound(name)
	}
	changed := *c.services[index]
	change(&changed)
	c.services[index] = &changed
	return nil
}

// labelNodes sets a label of some nodes, and returns their number; an empty value removes it.
func (c *Cluster) labelNodes(matches func(*corev1.Node) bool, key, value string) (count int) {
	for i, node := range c.nodes {
		if matches(node) {
			changed := *node
			changed.Labels = withEntry(node.Labels, key, value)
			c.nodes[i] = &changed
			count++
		}
	}
	return count
}

// withEntry returns a copy of labels or annotations with one set; an empty value removes it.
func withEntry(all map[string]string, key, value string) map[string]string {
	changed := maps.Clone(all)
	if changed == nil {
		changed = map[string]string{}
	}
	if changed[key] = value; value == "" {
		delete(changed, key)
	}
	return changed
}

// NotFound returns an error that there is no Service of a name, with a suggestion.
func (c Cluster) NotFound(name model.ObjectName) error {
	return explain.ServiceNotFound(name, c.ServiceNames(), "")
}

// Scale sets the number of ready endpoints of a Service in a zone.
type Scale struct {
	Service  model.ObjectName
	Zone     string
	Replicas int
}

// maxReplicas is the maximum number of endpoints of a Scale.
const maxReplicas = 10_000

// ParseScale parses "NAMESPACE/NAME=ZONE:REPLICAS".
func ParseScale(text string) (Scale, error) {
	name, rest, assigned := strings.Cut(text, "=")
	colon := strings.LastIndex(rest, ":")
	if !assigned || colon <= 0 {
		return Scale{}, fmt.Errorf("%q is not NAMESPACE/NAME=ZONE:REPLICAS, as in shop/web=zone-b:3", text)
	}
	query, err := explain.ParseQuery(name, "")
	if err != nil {
		return Scale{}, err
	}
	if query.Port != "" {
		return Scale{}, fmt.Errorf("%q names a port; endpoints are for the whole Service", text)
	}
	replicas, err := strconv.Atoi(rest[colon+1:])
	if err != nil || replicas < 0 || replicas > maxReplicas {
		return Scale{}, fmt.Errorf("%q: %q is not a number of replicas from 0 to %d", text, rest[colon+1:], maxReplicas)
	}
	return Scale{query.Service, rest[:colon], replicas}, nil
}

func (s Scale) apply(c *Cluster, rehinted map[model.ObjectName]bool) error {
	if c.Service(s.Service) == nil {
		return c.NotFound(s.Service)
	}
	var nodes []string
	zoneOf := map[string]string{}
	for _, node := range c.nodes {
		zone := node.Labels[string(policy.Zone)]
		if zoneOf[node.Name] = zone; zone == s.Zone {
			nodes = append(nodes, node.Name)
		}
	}
	if len(nodes) == 0 {
		return fmt.Errorf("--scale %s=%s:%d: no Node is in that zone; %s", s.Service, s.Zone, s.Replicas, c.zonesText())
	}
	slices.Sort(nodes)
	byType := map[discoveryv1.AddressType][]*discoveryv1.EndpointSlice{}
	for _, slice := range c.slicesOf[s.Service] {
		byType[slice.AddressType] = append(byType[slice.AddressType], slice)
	}
	if len(byType) == 0 {
		return fmt.Errorf("--scale %s=%s:%d: the Service has no EndpointSlice, so its ports are unknown", s.Service, s.Zone, s.Replicas)
	}
	c.slicesOf[s.Service] = nil
	for _, addressType := range slices.Sorted(maps.Keys(byType)) {
		scaled, err := s.scale(byType[addressType], nodes, zoneOf)
		if err != nil {
			return err
		}
		c.slicesOf[s.Service] = append(c.slicesOf[s.Service], scaled...)
	}
	rehinted[s.Service] = true
	return nil
}

// scale removes the last endpoints of the zone, or adds endpoints on the nodes with the fewest.
func (s Scale) scale(
	endpointSlices []*discoveryv1.EndpointSlice, nodes []string, zoneOf map[string]string,
) ([]*discoveryv1.EndpointSlice, error) {
	count, ready, onNode := 0, true, map[string]int{}
	scaled, _ := withoutEndpoints(endpointSlices, func(e *discoveryv1.Endpoint) bool {
		node := ""
		if e.NodeName != nil {
			node = *e.NodeName
		}
		zone := zoneOf[node]
		if e.Zone != nil {
			zone = *e.Zone
		}
		if zone != s.Zone || e.Conditions.Ready != nil && !*e.Conditions.Ready {
			return false
		}
		count++
		if count <= s.Replicas {
			onNode[node]++
		}
		return count > s.Replicas
	})
	const maxEndpoints = 1000 // endpoints of a slice
	for count < s.Replicas {
		template := endpointSlices[0]
		slice := *template
		slice.Name, slice.Endpoints = fmt.Sprintf("%s-forecast-%d", template.Name, count), nil
		for ; count < s.Replicas && len(slice.Endpoints) < maxEndpoints; count++ {
			node := slices.MinFunc(nodes, func(a, b string) int { return cmp.Compare(onNode[a], onNode[b]) })
			onNode[node]++
			addr, err := unusedAddr(template.AddressType, count)
			if err != nil {
				return nil, err
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{addr}, NodeName: &node, Zone: &s.Zone, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			})
		}
		scaled = append(scaled, &slice)
	}
	return scaled, nil
}

// unusedAddr returns an address that no pod has, from the ranges for benchmarks and for documentation.
func unusedAddr(addressType discoveryv1.AddressType, index int) (string, error) {
	switch addressType {
	case discoveryv1.AddressTypeIPv4:
		return netip.AddrFrom4([4]byte{198, 18, byte(index >> 8), byte(index)}).String(), nil
	case discoveryv1.AddressTypeIPv6:
		addr := netip.MustParseAddr("2001:db8::").As16()
		addr[14], addr[15] = byte(index>>8), byte(index)
		return netip.AddrFrom16(addr).String(), nil
	}
	return "", errors.New("endpoints with names instead of addresses cannot be scaled")
}
