package forecast

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/simulate"
)

// candidateChange is a possible change of one setting or object.
type candidateChange struct {
	sentence string // the instruction, such as "label node-7 example.com/rack=r1"
	change   Change
	objects  int // number of changed objects
	// isNeeded is set if without it the endpoint could not be used, or only if there were no others.
	isNeeded bool
}

// steps returns the changes that may let a node use an endpoint: one may be enough, and all of them together always
// are.
func (w *whyQuery) steps(decision selection.Decision, endpoint *model.PortEndpoint) []candidateChange {
	var steps []candidateChange
	add := func(change Change, objects int, isNeeded bool, format string, args ...any) {
		steps = append(steps, candidateChange{fmt.Sprintf(format, args...), change, objects, isNeeded})
	}
	name := explain.EndpointName(endpoint.Addr)
	if !endpoint.Ready {
		add(setReady(w.service, map[netip.Addr]bool{endpoint.Addr.Addr(): true}, true), 1, true, "make %s ready", name)
	}
	switch {
	case endpoint.Demotion.HasReason(model.Unreachable):
		reconnect := changeFunc(func(c *Cluster, _ map[model.ObjectName]bool) error {
			c.demotions = maps.Clone(c.demotions)
			delete(c.demotions, model.DemotionKey{Node: endpoint.Node, Reason: model.Unreachable})
			return nil
		})
		add(reconnect, 1, false, "make %s reachable from %s", endpoint.Node, w.node)
	case endpoint.Demotion != nil:
		label := endpoint.Demotion.Reason.Label()
		add(setLabel(endpoint.Node, label, ""), 1, false, "remove the label %s from %s", label, endpoint.Node)
	}
	w.labelSteps(decision, endpoint, add)
	w.settingSteps(decision, add)
	w.hintStep(add)
	choice, _ := decision.Selection.ClusterIP()
	if used := len(choice.Endpoints); used > 0 {
		usedAddrs, names := map[netip.Addr]bool{}, []string(nil)
		for _, chosen := range choice.Endpoints {
			usedAddrs[chosen.Addr.Addr()] = true
			names = append(names, explain.EndpointName(chosen.Addr))
		}
		what := "the endpoint that is used"
		if used > 1 {
			what = fmt.Sprintf("the %d endpoints that are used", used)
		}
		add(setReady(w.service, usedAddrs, false), used, false, "make %s unready: %s", what, explain.ListOrCount(names))
	}
	return steps
}

type addFunc = func(change Change, objects int, isNeeded bool, format string, args ...any)

// labelSteps adds changes that give the node the endpoint's values of topology keys, or the endpoint's node this node's
// values. Users do not move a node to another zone or region, so such a label is only added.
func (w *whyQuery) labelSteps(decision selection.Decision, endpoint *model.PortEndpoint, add addFunc) {
	node := decision.Viewpoint.Node
	keys := decision.Service.Topology.Keys
	if len(keys) == 0 { // hints are for zones
		keys = []policy.Key{policy.Zone}
	}
	for _, key := range keys {
		if key == policy.AnyNode || key == policy.Hostname {
			continue
		}
		nodeValue, hasValue := node.Labels[string(key)]
		value, known := decision.Viewpoint.ValueOf(endpoint, key)
		if isLocation := key == policy.Zone || key == simulate.Region; isLocation && hasValue && known {
			continue
		}
		if known && (!hasValue || nodeValue != value) && node.Labels != nil {
			add(setLabel(node.Name, string(key), value), 1, false, "label %s %s=%s", node.Name, key, value)
		}
		isFromSlice := key == policy.Zone && endpoint.Zone != "" // then the node's label has no effect
		if hasValue && endpoint.Node != "" && !isFromSlice && (!known || nodeValue != value) {
			add(setLabel(endpoint.Node, string(key), nodeValue), 1, false, "label %s %s=%s", endpoint.Node, key, nodeValue)
		}
	}
}

// settingSteps adds changes of the Service's settings.
func (w *whyQuery) settingSteps(decision selection.Decision, add addFunc) {
	service := w.Service(w.service)
	if decision.Service.InternalTrafficLocal {
		clusterPolicy := changeFunc(func(c *Cluster, _ map[model.ObjectName]bool) error {
			return c.changeService(w.service, func(service *corev1.Service) {
				service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
			})
		})
		add(clusterPolicy, 1, false, "set spec.internalTrafficPolicy to Cluster")
	}
	if text, has := service.Annotations[policy.TopologyKeysAnnotation]; has {
		if keys := decision.Service.Topology.Keys; len(keys) > 0 && !slices.Contains(keys, policy.AnyNode) {
			wider := text + ", *"
			add(Annotate{w.service, policy.TopologyKeysAnnotation, wider}, 1, false, "set %s to %q", policy.TopologyKeysAnnotation, wider)
		}
		if !decision.Service.IsHeadless {
			add(Annotate{w.service, policy.TopologyKeysAnnotation, ""}, 1, false, "remove the annotation %s", policy.TopologyKeysAnnotation)
		} else {
			add(Annotate{w.service, policy.TopologyKeysAnnotation, "*"}, 1, false, "set %s to \"*\"", policy.TopologyKeysAnnotation)
		}
	}
	if mode := policy.ModeOf(service.Annotations); mode.Annotation != "" {
		add(Annotate{w.service, mode.Annotation, ""}, 1, false, "remove the annotation %s", mode.Annotation)
	}
	if decision.Service.Topology.MaxLoad > 0 {
		if _, has := service.Annotations[policy.MaxLoadAnnotation]; has {
			add(Annotate{w.service, policy.MaxLoadAnnotation, ""}, 1, false, "remove the annotation %s", policy.MaxLoadAnnotation)
		}
	} else if decision.Service.Topology.Keys != nil || service.Spec.TrafficDistribution != nil {
		defaultBound := policy.FormatMaxLoad(policy.DefaultLoadBound)
		add(Annotate{w.service, policy.MaxLoadAnnotation, defaultBound}, 1, false, "add the annotation %s: %q", policy.MaxLoadAnnotation,
			defaultBound)
	}
	if distribution := service.Spec.TrafficDistribution; distribution != nil {
		add(Annotate{w.service, TrafficDistribution, ""}, 1, false, "remove spec.trafficDistribution, which is %s", *distribution)
	}
}

// hintStep adds the removal of hints that the controller does not write.
func (w *whyQuery) hintStep(add addFunc) {
	var names []string
	for _, slice := range w.slicesOf[w.service] {
		isHinted := slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil })
		if isHinted && !isWrittenByController(slice) {
			names = append(names, slice.Name)
		}
	}
	if len(names) > 0 {
		removeHints := changeFunc(func(c *Cluster, _ map[model.ObjectName]bool) error {
			c.slicesOf[w.service] = endpointsIn(c.slicesOf[w.service], func(e *discoveryv1.Endpoint) { e.Hints = nil })
			return nil
		})
		add(removeHints, len(names), false, "remove the hints from EndpointSlice %s", strings.Join(names, ", "))
	}
}

// setReady makes endpoints ready or unready.
func setReady(service model.ObjectName, addrs map[netip.Addr]bool, ready bool) changeFunc {
	return func(c *Cluster, rehinted map[model.ObjectName]bool) error {
		c.slicesOf[service] = endpointsIn(c.slicesOf[service], func(e *discoveryv1.Endpoint) {
			if len(e.Addresses) == 0 {
				return
			}
			if addr, err := netip.ParseAddr(e.Addresses[0]); err == nil && addrs[addr] {
				e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: new(false)}
			}
		})
		rehinted[service] = true
		return nil
	}
}

// setLabel sets a label of an existing node; an empty value removes it.
func setLabel(name, key, value string) changeFunc {
	return func(c *Cluster, _ map[model.ObjectName]bool) error {
		if c.labelNodes(func(node *corev1.Node) bool { return node.Name == name }, key, value) == 0 {
			return fmt.Errorf("node %s not found", name)
		}
		return nil
	}
}
