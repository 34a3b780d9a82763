package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Objects lists the objects of a cluster as its API server has them, page by page. An error names what could not be
// listed.
//
// read is called after each page, with what is listed and how many objects of all kinds there are; it may be nil.
func Objects(ctx context.Context, config *rest.Config, read func(resource string, objects int)) (convert.Objects, error) {
	all, err := newListWatches(config, convert.View{WithHeadless: true})
	if err != nil {
		return convert.Objects{}, err
	}
	var objects convert.Objects
	lists := map[*convert.Kind][]listWatchOf{
		convert.Nodes:          {{convert.Nodes.Resource, all.allNodes}},
		convert.Services:       {{convert.Services.Resource, all.byKind[convert.Services]}},
		convert.EndpointSlices: {{convert.EndpointSlices.Resource, all.byKind[convert.EndpointSlices]}, {headlessSlices, all.headless}},
	}
	for _, kind := range convert.WholeKinds {
		for _, list := range lists[kind] {
			if err := list.into(ctx, &objects, read); err != nil {
				return convert.Objects{}, err
			}
		}
	}
	return objects, nil
}

type listWatchOf struct {
	resource  string
	listWatch lister
}

type lister interface {
	ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
}

func (l listWatchOf) into(ctx context.Context, objects *convert.Objects, read func(resource string, objects int)) error {
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return l.listWatch.ListWithContext(ctx, options)
	})
	pages := 0
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(sent runtime.Object) error {
		object, isObject := sent.(convert.Object)
		if !isObject {
			return fmt.Errorf("the API server sent %T", sent)
		}
		objects.Add(object)
		if pages++; read != nil && pages%500 == 0 {
			read(l.resource, objects.Len())
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", l.resource, err)
	}
	return nil
}
