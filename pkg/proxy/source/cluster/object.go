package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// object is what an informer caches of an object of the cluster. T is a pointer to a value of the model, or ranges; that value is
// the one that is delivered, so nobody changes it.
type object[T any] struct {
	name            model.ObjectName // without a namespace if the kind is cluster-scoped
	uid             types.UID
	resourceVersion string            // informers tell by it whether an object changed
	value           T                 // the zero value if the object is not ours to serve, or refused
	refused         []convert.Problem // why the object is refused; none if it is not
}

// GetObjectMeta lets informers find an object's name and version. It is built anew each time: kept, it would be larger than most
// values.
func (o *object[T]) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.name.Namespace, Name: o.name.Name, UID: o.uid, ResourceVersion: o.resourceVersion}
}

// strip returns the transform that makes an object of what the API server sent, before an informer caches it. An informer may ask
// twice, so what was transformed already passes through.
func strip[From metav1.Object, T any](kind string, read func(From) (T, field.ErrorList)) cache.TransformFunc {
	var namespaces interner
	return func(sent any) (any, error) {
		from, isNew := sent.(From)
		if !isNew {
			return sent, nil
		}
		value, errs := read(from)
		name := model.ObjectName{Namespace: namespaces.string(from.GetNamespace()), Name: from.GetName()}
		return &object[T]{
			name:            name,
			uid:             from.GetUID(),
			resourceVersion: from.GetResourceVersion(),
			value:           value,
			refused:         convert.Refused(kind, name, errs),
		}, nil
	}
}

// handle returns the handler that hands an informer's objects to put, with their earlier version if there is one, and the names of
// those that are gone to gone. Where the deletion was missed because the watch was broken, a tombstone
// (cache.DeletedFinalStateUnknown) is what a later list makes of it.
func handle[T any](put func(before, now *object[T]), gone func(model.ObjectName)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(added any) { put(nil, added.(*object[T])) },
		UpdateFunc: func(before, now any) { put(before.(*object[T]), now.(*object[T])) },
		DeleteFunc: func(deleted any) {
			name, err := cache.DeletionHandlingObjectToName(deleted)
			if err == nil { // the informer found the object by that name
				gone(model.ObjectName{Namespace: name.Namespace, Name: name.Name})
			}
		},
	}
}
