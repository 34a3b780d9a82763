package forecast

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Cluster holds the API objects of a cluster.
type Cluster struct {
	nodes    []*corev1.Node
	services []*corev1.Service                                 // by name
	slicesOf map[model.ObjectName][]*discoveryv1.EndpointSlice // by name of their Service
	// demands are the measured demands that are valid; nil if they should not be used. assumedReason is why other
	// Services have default demand. demandsInvalid is set if there are ServiceDemands, but none is valid.
	demands        map[model.ObjectName]*model.Demand
	assumedReason  v1alpha1.DemandAssumedReason
	demandsInvalid bool
	// isDump is set if the objects are from manifests, such as the output of kubectl, which may be incomplete.
	isDump bool
	// rejected are the findings about objects that could not be read.
	rejected []model.Finding
	view     convert.View
	// demotions are the node-local demotions of the proxy on the explained node, which no API object contains.
	demotions map[model.DemotionKey]*model.Demotion
}

// NewCluster returns the cluster of some objects. The view has the defaults for Services without settings of their own.
func NewCluster(objects convert.Objects, view convert.View) Cluster {
	view.WithHeadless = true
	c := Cluster{
		isDump: objects.FolderInventory != nil, assumedReason: v1alpha1.NoUsableDemand,
		nodes: objects.Nodes, slicesOf: map[model.ObjectName][]*discoveryv1.EndpointSlice{}, view: view,
		demands: map[model.ObjectName]*model.Demand{},
	}
	c.services = slices.SortedFunc(slices.Values(objects.Services), func(a, b *corev1.Service) int {
		return nameOf(a).Compare(nameOf(b))
	})
	for _, slice := range objects.Slices {
		service := model.ObjectName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		c.slicesOf[service] = append(c.slicesOf[service], slice)
	}
	for _, list := range c.slicesOf {
		slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	}
	state := objects.DemandState
	zones, isValid := map[string]bool{}, state != model.DemandUnavailable && state != model.DemandStale
	switch {
	case objects.DemandsForbidden:
		c.assumedReason = v1alpha1.DemandListingForbidden
	case !isValid:
		c.assumedReason, c.demandsInvalid = state.AssumedReason(), true
	}
	for _, node := range c.nodes {
		zones[node.Labels[corev1.LabelTopologyZone]] = true
	}
	for _, object := range objects.Demands {
		demand, errs := convert.ServiceDemand(object)
		c.rejected = append(c.rejected, rejectedFindings(convert.ServiceDemands, object, errs)...)
		if demand != nil && isValid && hasDemandIn(zones, demand) {
			c.demands[nameOf(object)] = demand
		}
	}
	return c
}

// hasDemandIn reports whether a zone that has Nodes has demand: other demand cannot be used for a plan
// (balance.NodeClasses.Measured).
func hasDemandIn(zones map[string]bool, demand *model.Demand) bool {
	for zone, amount := range demand.Zones {
		if amount > 0 && zones[zone] {
			return true
		}
	}
	return false
}

// WithoutMeasuredDemand returns the cluster without measured demand.
func (c Cluster) WithoutMeasuredDemand() Cluster {
	c.demands, c.rejected = nil, nil
	return c
}

// WithDemotions returns the cluster with the demotions that the proxy of one node has because of its own observations.
func (c Cluster) WithDemotions(demotions map[model.DemotionKey]*model.Demotion) Cluster {
	c.demotions = demotions
	return c
}

func nameOf(object convert.Object) model.ObjectName {
	return model.ObjectName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Service returns a Service; nil means that there is none of this name.
func (c Cluster) Service(name model.ObjectName) *corev1.Service {
	i, found := c.index(name)
	if !found {
		return nil
	}
	return c.services[i]
}

func (c Cluster) index(name model.ObjectName) (i int, found bool) {
	return slices.BinarySearchFunc(c.services, name, func(s *corev1.Service, name model.ObjectName) int {
		return nameOf(s).Compare(name)
	})
}

// ServiceNames returns the names of all Services, sorted.
func (c Cluster) ServiceNames() []model.ObjectName {
	names := make([]model.ObjectName, len(c.services))
	for i, service := range c.services {
		names[i] = nameOf(service)
	}
	return names
}

// nodeState returns the nodes that the proxies would know, in the order of their objects, the state of these nodes at a
// time, and the findings about rejected objects.
func (c Cluster) nodeState(now time.Time) (nodeModels []model.Node, change model.Change, rejected []model.Finding) {
	store := nodes.NewStore("")
	store.AllLabels = true
	for _, object := range c.nodes {
		node, errs := convert.Node(object)
		if len(errs) > 0 {
			rejected = append(rejected, rejectedFindings(convert.Nodes, object, errs)...)
			continue
		}
		nodeModels = append(nodeModels, *node)
		store.UpdateFull(node.Name, node, now)
		rejected = append(rejected, convert.ObjectKey{Kind: convert.Nodes, Name: nameOf(object)}.IgnoredFindings("", object, nil, c.view)...)
	}
	store.SetAllKnown(true)
	store.TakeChanges(&change)
	return nodeModels, change, rejected
}

func rejectedFindings(kind *convert.Kind, object convert.Object, errs field.ErrorList) []model.Finding {
	if len(errs) == 0 {
		return nil
	}
	return convert.ValidationFindings(kind, nameOf(object), string(object.GetUID()), errs)
}

// convertSlices converts some slices. Rejected ones are missing.
func (c Cluster) convertSlices(objects []*discoveryv1.EndpointSlice) (converted []*model.EndpointSlice, rejected []model.Finding) {
	for _, object := range objects {
		slice, errs := convert.EndpointSlice(object, c.view)
		rejected = append(rejected, rejectedFindings(convert.EndpointSlices, object, errs)...)
		if slice != nil {
			converted = append(converted, slice)
		}
	}
	return converted, rejected
}

// readyEndpoints returns the number of ready endpoints of some Services, by node; nil if services is empty.
func (c Cluster) readyEndpoints(services []model.ObjectName) (byNode map[string]uint32, rejected []model.Finding) {
	if len(services) == 0 {
		return nil, nil
	}
	byNode = map[string]uint32{}
	for _, service := range services {
		converted, problems := c.convertSlices(c.slicesOf[service])
		rejected = append(rejected, problems...)
		for node, count := range selection.ReadyEndpoints(converted) {
			byNode[node] += count
		}
	}
	return byNode, rejected
}
