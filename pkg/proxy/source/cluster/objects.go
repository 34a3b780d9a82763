package cluster

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

// progressEach is the number of objects after which progress is reported: a page of the API server.
const progressEach = 500

// Objects lists the objects of a cluster as its API server has them, page by page. An error names what could not be
// listed. A resource that proxies can do without may be missing, or forbidden.
//
// Where there are ServiceDemands, the Lease of their publisher in a namespace is read, too; it may be missing or forbidden.
//
// read is called after each 500 objects, with what is listed and how many of all kinds there are; it may be nil.
func Objects(
	ctx context.Context, config *rest.Config, demandNamespace string, read func(resource string, objects int),
) (convert.Objects, error) {
	all, err := newListWatches(config, Options{View: convert.View{WithHeadless: true}})
	if err != nil {
		return convert.Objects{}, err
	}
	var objects convert.Objects
	for _, kind := range convert.WholeKinds {
		list := listOf{kind.Resource, all.byKind[kind]}
		if kind == convert.Nodes {
			list.listWatch = all.allNodes
		}
		err := list.into(ctx, &objects, read)
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
		if objects.DemandState, err = demandStateNow(ctx, all.leases, demandNamespace); err != nil {
			return convert.Objects{}, err
		}
	}
	return objects, nil
}

// Service returns one Service as the API server has it, whoever serves it. It lists, because the permission to list
// does not include the one to get. Nil: there is none of this name.
func Service(ctx context.Context, config *rest.Config, name model.ObjectName) (*corev1.Service, error) {
	all, err := newListWatches(config, Options{})
	if err != nil {
		return nil, err
	}
	one := convert.Selector{Namespace: name.Namespace, Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()}
	var found *corev1.Service
	err = eachItem(ctx, listWatch(all.services, convert.Services.Resource, one), func(sent runtime.Object) error {
		if service, isService := sent.(*corev1.Service); isService && service.Name == name.Name {
			found = service
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing Service %s: %w", name, err)
	}
	return found, nil
}

type listOf struct {
	resource  string // in messages
	listWatch *cache.ListWatch
}

func (l listOf) into(ctx context.Context, objects *convert.Objects, read func(resource string, objects int)) error {
	listed := 0
	err := eachItem(ctx, l.listWatch, func(sent runtime.Object) error {
		object, isObject := sent.(convert.Object)
		if !isObject {
			return fmt.Errorf("the API server sent %T", sent)
		}
		objects.Add(object)
		if listed++; read != nil && listed%progressEach == 0 {
			read(l.resource, objects.Len())
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", l.resource, err)
	}
	return nil
}
