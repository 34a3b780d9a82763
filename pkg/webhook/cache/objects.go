package cache

import (
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// ByObject returns the cache.Options.ByObject for the cache that is passed to NewCache: which parts of objects to keep.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		metadataOf("Namespace"): {Transform: keepMetadata},
		metadataOf("Node"):      {Transform: keepMetadata},
	}
}

// Mapper returns a static mapper for both kinds, which are cluster-scoped; it is a manager's MapperProvider. The
// default one queries the API server, so a program that starts while that is down would exit.
func Mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return mapper, nil
}

// metadataOf selects the metadata of a kind. A cache for it does not read the rest of the objects.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kind}}
}

// keepMetadata keeps only the name, the labels and Vicinity's annotations of an object. A Node's other annotations
// alone can have many kilobytes. The version stays, because the informer uses it to recognize repetitions.
func keepMetadata(object any) (any, error) {
	full, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("strip object: got %T, want PartialObjectMetadata", object)
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta: full.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name:            full.Name,
			UID:             full.UID,
			ResourceVersion: full.ResourceVersion,
			Labels:          full.Labels,
			Annotations:     vicinityAnnotations(full.Annotations),
		},
	}, nil
}

// vicinityAnnotations returns Vicinity's annotations.
func vicinityAnnotations(annotations map[string]string) map[string]string {
	var kept map[string]string
	for key, value := range annotations {
		if !strings.HasPrefix(key, policy.Domain) {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
	}
	return kept
}
