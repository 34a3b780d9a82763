package cluster

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// stripService returns the transform of Services. proxyName is ours in the label service-proxy-name.
func stripService(proxyName string) cache.TransformFunc {
	var names interner
	return strip(convert.ServiceKind, func(service *corev1.Service) (*model.Service, field.ErrorList) {
		value, errs := convert.Service(service, proxyName)
		if value != nil {
			names.service(value)
		}
		return value, errs
	})
}

func stripSlice() cache.TransformFunc {
	var names interner
	return strip(convert.EndpointSliceKind, func(slice *discoveryv1.EndpointSlice) (*model.EndpointSlice, field.ErrorList) {
		value, errs := convert.EndpointSlice(slice)
		if value != nil {
			names.slice(value)
		}
		return value, errs
	})
}

func stripServiceCIDR() cache.TransformFunc {
	return strip(convert.ServiceCIDRKind, func(object *networkingv1.ServiceCIDR) ([]netip.Prefix, field.ErrorList) {
		return convert.ServiceCIDR(object)
	})
}

func stripNode() cache.TransformFunc { return strip(convert.NodeKind, convert.Node) }

// stripMetadata returns the transform of the other nodes, which keeps the labels of some keys. The API server has validated names
// and labels, and here they are only compared.
func stripMetadata(keys keySet) cache.TransformFunc {
	var values interner
	return strip(convert.NodeKind, func(node *metav1.PartialObjectMetadata) (*model.Node, field.ErrorList) {
		labels := keys.of(node.Labels)
		for key, value := range labels {
			labels[key] = values.string(value)
		}
		return &model.Node{Name: node.Name, Labels: labels}, nil
	})
}
