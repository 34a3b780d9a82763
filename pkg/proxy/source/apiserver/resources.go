package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// listWatches are the requests to the API server.
type listWatches struct {
	byKind map[*convert.Kind]*cache.ListWatch
	// allNodes lists all nodes in full.
	allNodes *cache.ListWatch
	// leases and nodes are used to check whether TopologySlices are current.
	leases   rest.Interface
	nodes    metadata.Getter
	services rest.Interface
}

// newListWatches creates the clients. It avoids a clientset, which would link every type of Kubernetes into the binary.
func newListWatches(config *rest.Config, options Options) (listWatches, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return listWatches{}, fmt.Errorf("create HTTP client for %s: %w", config.Host, err)
	}
	metadataClient, err := metadata.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return listWatches{}, fmt.Errorf("create metadata client for %s: %w", config.Host, err)
	}
	clients := map[schema.GroupVersion]rest.Interface{}
	all := listWatches{byKind: map[*convert.Kind]*cache.ListWatch{}}
	for _, kind := range watchedKinds() {
		selector := selectorOf(kind, options.View)
		if kind.IsMetadataOnly {
			all.byKind[kind] = metadataListWatch(metadataClient.Resource(kind.Group.WithResource(kind.Resource)), selector)
			continue
		}
		if clients[kind.Group] == nil {
			client, err := newClient(config, httpClient, kind.Group, kind.AddToScheme)
			if err != nil {
				return listWatches{}, fmt.Errorf("create client for %s of %s: %w", kind.Resource, config.Host, err)
			}
			clients[kind.Group] = client
		}
		all.byKind[kind] = listWatch(clients[kind.Group], kind.Resource, selector)
	}
	all.services = clients[convert.Services.Group]
	all.allNodes = listWatch(clients[convert.Nodes.Group], convert.Nodes.Resource, convert.Selector{})
	all.nodes = metadataClient.Resource(convert.OtherNodes.Group.WithResource(convert.OtherNodes.Resource))
	if all.leases, err = newClient(config, httpClient, coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme); err != nil {
		return listWatches{}, fmt.Errorf("create client for Leases of %s: %w", config.Host, err)
	}
	return all, nil
}

// watchedKinds returns the kinds that are watched, always or on demand.
func watchedKinds() []*convert.Kind {
	return slices.AppendSeq(append(slices.Clone(convert.Kinds), convert.ProxyAddresses), nodes.Kinds)
}

func selectorOf(kind *convert.Kind, view convert.View) convert.Selector {
	if kind.Select == nil {
		return convert.Selector{}
	}
	return kind.Select(view)
}

// newClient returns a client for one API group.
func newClient(
	config *rest.Config, httpClient *http.Client, group schema.GroupVersion, addToScheme func(*runtime.Scheme) error,
) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &group
	config.APIPath = "/apis"
	if group.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return rest.RESTClientForConfigAndClient(config, httpClient)
}

// listWatch lists and watches the objects of a resource that match a selector. API servers before Kubernetes 1.31
// cannot select Services by spec.clusterIP and return an error. Then listWatch requests all Services, and package
// convert skips those that do not match.
func listWatch(client rest.Interface, resource string, selector convert.Selector) *cache.ListWatch {
	var isFieldUnknown atomic.Bool
	selected := cache.NewFilteredListWatchFromClient(client, resource, selector.Namespace, func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = selector.Labels, selector.Fields
		if isFieldUnknown.Load() {
			options.FieldSelector = ""
		}
	})
	retryWithoutField := func(err error) bool {
		if !isFieldSelectorError(err) {
			return false
		}
		isFieldUnknown.Store(true)
		return true
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := selected.ListWithContext(ctx, options)
			if retryWithoutField(err) {
				list, err = selected.ListWithContext(ctx, options)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watched, err := selected.WatchWithContext(ctx, options)
			if retryWithoutField(err) {
				watched, err = selected.WatchWithContext(ctx, options)
			}
			return watched, err
		},
	}
}

// isFieldSelectorError reports whether the error means that the API server cannot select by a field. Only its text
// shows that. The first text is for kinds that can be selected only by name, such as Services in 1.30.
func isFieldSelectorError(err error) bool {
	return apierrors.IsBadRequest(err) &&
		(strings.Contains(err.Error(), "is not a known field selector") || strings.Contains(err.Error(), "field label not supported"))
}

func metadataListWatch(client metadata.Getter, selector convert.Selector) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector, options.FieldSelector = selector.Labels, selector.Fields
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector, options.FieldSelector = selector.Labels, selector.Fields
			return client.Watch(ctx, options)
		},
	}
}
