package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the API group of the resources, with the served version.
var SchemeGroupVersion = schema.GroupVersion{Group: "vicinity.dev", Version: "v1alpha1"}

// AddToScheme registers the types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &ServiceDemand{}, &ServiceDemandList{}, &TopologySlice{}, &TopologySliceList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
