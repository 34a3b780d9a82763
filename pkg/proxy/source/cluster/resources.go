package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// resources are the requests to the API server: which objects are asked for.
type resources struct {
	services, slices, serviceCIDRs, ownNode *cache.ListWatch
	// otherNodes has their metadata only, allNodes all of all of them.
	otherNodes, allNodes *cache.ListWatch
}

// newResources makes the clients. It takes no clientset: that one would carry every type of Kubernetes into the process.
func newResources(config *rest.Config, options Options) (resources, error) {
	selector, err := serviceSelector(options.ServiceProxyName)
	if err != nil {
		return resources{}, fmt.Errorf("selecting Services: %w", err)
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return resources{}, fmt.Errorf("making an HTTP client for %s: %w", config.Host, err)
	}
	core, errCore := newClient(config, httpClient, corev1.SchemeGroupVersion, corev1.AddToScheme)
	discovery, errDiscovery := newClient(config, httpClient, discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme)
	networking, errNetworking := newClient(config, httpClient, networkingv1.SchemeGroupVersion, networkingv1.AddToScheme)
	metadataClient, errMetadata := metadata.NewForConfigAndClient(config, httpClient)
	if err := errors.Join(errCore, errDiscovery, errNetworking, errMetadata); err != nil {
		return resources{}, fmt.Errorf("making clients for %s: %w", config.Host, err)
	}
	own := fields.OneTermEqualSelector("metadata.name", options.Node)
	others := fields.OneTermNotEqualSelector("metadata.name", options.Node)
	return resources{
		services:     listWatch(core, "services", selector, fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone)),
		slices:       listWatch(discovery, "endpointslices", lacking(corev1.IsHeadlessService), fields.Everything()),
		serviceCIDRs: listWatch(networking, "servicecidrs", labels.Everything(), fields.Everything()),
		ownNode:      listWatch(core, "nodes", labels.Everything(), own),
		allNodes:     listWatch(core, "nodes", labels.Everything(), fields.Everything()),
		otherNodes:   metadataListWatch(metadataClient.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), others),
	}, nil
}

// serviceSelector selects the Services that are ours by their label: those without it for the proxy without a name, as
// kube-proxy does, and those with our name for one that has a name.
func serviceSelector(proxyName string) (labels.Selector, error) {
	if proxyName == "" {
		return lacking(policy.ServiceProxyNameLabel), nil
	}
	requirement, err := labels.NewRequirement(policy.ServiceProxyNameLabel, selection.Equals, []string{proxyName})
	if err != nil {
		return nil, err
	}
	return labels.NewSelector().Add(*requirement), nil
}

// lacking selects the objects without a label.
func lacking(label string) labels.Selector {
	requirement, err := labels.NewRequirement(label, selection.DoesNotExist, nil)
	if err != nil {
		panic(err) // every label that is asked for is a constant of this program
	}
	return labels.NewSelector().Add(*requirement)
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

func listWatch(client rest.Interface, resource string, byLabel labels.Selector, byField fields.Selector) *cache.ListWatch {
	return cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = byLabel.String(), byField.String()
	})
}

func metadataListWatch(client metadata.Getter, byField fields.Selector) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = byField.String()
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = byField.String()
			return client.Watch(ctx, options)
		},
	}
}
