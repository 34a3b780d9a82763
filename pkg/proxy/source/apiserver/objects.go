package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Objects lists the objects of a cluster from its API server, page by page. An error names the resource that could not
// be listed. An optional resource may be missing or forbidden.
//
// If there are ServiceDemands, Objects also reads the Lease of their publisher in demandNamespace. It may be missing or
// forbidden.
func Objects(ctx context.Context, config *rest.Config, demandNamespace string) (convert.Objects, error) {
	all, err := newListWatches(config, Options{View: convert.View{WithHeadless: true}})
	if err != nil {
		return convert.Objects{}, err
	}
	var objects convert.Objects
	for _, kind := range convert.ObjectKinds {
		list := resourceList{kind.Resource, all.byKind[kind]}
		if kind == convert.Nodes {
			list.listWatch = all.allNodes
		}
		err := list.addTo(ctx, &objects)
		if kind == convert.ServiceDemands && apierrors.IsForbidden(err) {
			objects.DemandsForbidden = true
		}
		if kind.Optional != nil && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
			continue
		}
		if err != nil {
			return convert.Objects{}, err
		}
	}
	if len(objects.Demands) > 0 {
		if objects.DemandState, _, err = readDemandLease(ctx, all.leases, demandNamespace); err != nil {
			return convert.Objects{}, err
		}
	}
	return objects, nil
}

// Service returns a Service from the API server, including one that another proxy serves; nil if it does not exist. It
// lists, because the permission to list does not include the permission to get.
func Service(ctx context.Context, config *rest.Config, name model.ObjectName) (*corev1.Service, error) {
	all, err := newListWatches(config, Options{})
	if err != nil {
		return nil, err
	}
	selector := convert.Selector{Namespace: name.Namespace, Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()}
	var found *corev1.Service
	err = forEachPage(ctx, listWatch(all.services, convert.Services.Resource, selector), func(sent runtime.Object) error {
		if service, isService := sent.(*corev1.Service); isService && service.Name == name.Name {
			found = service
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list Service %s: %w", name, err)
	}
	return found, nil
}

type resourceList struct {
	resource  string // in errors
	listWatch *cache.ListWatch
}

func (l resourceList) addTo(ctx context.Context, objects *convert.Objects) error {
	err := forEachPage(ctx, l.listWatch, func(sent runtime.Object) error {
		object, isObject := sent.(convert.Object)
		if !isObject {
			return fmt.Errorf("the API server sent %T", sent)
		}
		objects.Add(object)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", l.resource, err)
	}
	return nil
}
