// Package cluster reads the objects of a cluster that measuring demand needs: nodes, proxies and Services.
package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
)

// proxyTTL is how long a node counts as having a proxy after its proxy has disappeared.
const proxyTTL = 10 * time.Minute

// Node is a node with a proxy. Nodes without one are no demand: whatever serves their clients does not plan.
type Node struct {
	Name, Zone string
	// Weight is the node's assumed demand, relative to other nodes.
	Weight float64
	// HasReadyProxy is set if the node's proxy is ready, and should respond. One that starts, or whose node is down, does
	// not.
	HasReadyProxy bool
}

// Nodes are the nodes of the cluster: those with a proxy, the proxies, and the labels of all nodes by name.
type Nodes struct {
	WithProxy []Node
	Targets   []pull.Target
	Labels    map[string]map[string]string
}

// Reader reads objects from a cache. It is not safe for concurrent use.
type Reader struct {
	cache     cache.Cache
	objects   client.Reader // of the cache
	proxies   types.NamespacedName
	lastProxy map[string]time.Time // when each node had a proxy last
}

// NewReader returns a reader whose cache is not started yet. proxies is the Service whose EndpointSlices list the
// proxies.
func NewReader(ctx context.Context, config *rest.Config, proxies types.NamespacedName) (*Reader, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{discoveryv1.AddToScheme, corev1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil) // the default mapper queries the API server, which may be down
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"), meta.RESTScopeNamespace) // needed if Namespaces are set
	objects, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, ByObject: cacheOptions(proxies)})
	if err != nil {
		return nil, fmt.Errorf("create cache: %w", err)
	}
	for object := range cacheOptions(proxies) {
		if _, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watch objects: %w", err)
		}
	}
	return &Reader{cache: objects, objects: objects, proxies: proxies, lastProxy: map[string]time.Time{}}, nil
}

// Start watches objects until ctx ends.
func (r *Reader) Start(ctx context.Context) error { return r.cache.Start(ctx) }

// WaitForSync waits until all objects are listed. It returns false if ctx ends before.
func (r *Reader) WaitForSync(ctx context.Context) bool { return r.cache.WaitForCacheSync(ctx) }

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kind}}
}

// cacheOptions returns the object types to cache, and the transforms that strip them.
func cacheOptions(proxies types.NamespacedName) map[client.Object]cache.ByObject {
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: proxies.Name})
	return map[client.Object]cache.ByObject{
		metadataOf("Node"):           {Transform: strip},
		&corev1.Service{}:            {Transform: strip},
		&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{proxies.Namespace: {LabelSelector: selector}}},
	}
}

// strip keeps only the labels of a Node, and the fields of a Service that configure its load bound.
func strip(object any) (any, error) {
	switch full := object.(type) {
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: full.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion, Labels: full.Labels,
		}}, nil
	case *corev1.Service:
		stripped := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, Namespace: full.Namespace, UID: full.UID, ResourceVersion: full.ResourceVersion,
		}}
		stripped.Spec.TrafficDistribution = full.Spec.TrafficDistribution
		for _, annotation := range policy.Annotations {
			if value, has := full.Annotations[annotation.Name]; has {
				metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, annotation.Name, value)
			}
		}
		return stripped, nil
	}
	return object, nil // tombstones and EndpointSlices
}

// Nodes returns the nodes. Only proxies on Linux count connections. A node whose proxy has disappeared counts for
// proxyTTL: in a rollout another proxy follows.
func (r *Reader) Nodes(ctx context.Context, now time.Time) (Nodes, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := r.objects.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return Nodes{}, fmt.Errorf("list the metadata of Nodes: %w", err)
	}
	var proxies discoveryv1.EndpointSliceList
	if err := r.objects.List(ctx, &proxies, client.UnsafeDisableDeepCopy); err != nil {
		return Nodes{}, fmt.Errorf("list the EndpointSlices of %s: %w", r.proxies, err)
	}
	result := Nodes{Labels: make(map[string]map[string]string, len(list.Items))}
	for i := range list.Items {
		result.Labels[list.Items[i].Name] = list.Items[i].Labels
	}
	addrs, isReady := map[string]netip.Addr{}, map[string]bool{}
	for i := range proxies.Items {
		for _, endpoint := range proxies.Items[i].Endpoints {
			name := ptr.Deref(endpoint.NodeName, "")
			labels, exists := result.Labels[name]
			if !exists || !policy.IsLinux(labels) || len(endpoint.Addresses) == 0 {
				continue
			}
			addr, err := netip.ParseAddr(endpoint.Addresses[0])
			lowest, has := addrs[name]
			if err == nil && (!has || addr.Less(lowest)) {
				addrs[name] = addr
			}
			isReady[name] = isReady[name] || ptr.Deref(endpoint.Conditions.Ready, true)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(addrs)) {
		result.Targets = append(result.Targets, pull.Target{Node: name, Addr: addrs[name]})
		r.lastProxy[name] = now
	}
	maps.DeleteFunc(r.lastProxy, func(name string, at time.Time) bool {
		_, exists := result.Labels[name]
		return !exists || now.Sub(at) >= proxyTTL
	})
	for name := range r.lastProxy {
		labels := result.Labels[name]
		weight, _ := policy.DemandOf(labels)
		result.WithProxy = append(result.WithProxy, Node{name, labels[string(policy.Zone)], float64(weight), isReady[name]})
	}
	return result, nil
}

// Services returns all Services by namespace/name.
func (r *Reader) Services(ctx context.Context) (map[string]*corev1.Service, error) {
	var list corev1.ServiceList
	if err := r.objects.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	services := make(map[string]*corev1.Service, len(list.Items))
	for i := range list.Items {
		services[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	return services, nil
}
