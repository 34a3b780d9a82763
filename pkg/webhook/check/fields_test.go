package check

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKubernetesFieldsAreNotErrors checks all fields of a Service and a Namespace.
func TestKubernetesFieldsAreNotErrors(t *testing.T) {
	for prefix, object := range map[string]any{
		"": corev1.Service{}, "metadata.": metav1.ObjectMeta{}, "spec.": corev1.ServiceSpec{},
	} {
		checkFields(t, prefix, object, serviceFields)
	}
	checkFields(t, "", corev1.Namespace{}, namespaceFields)
	checkFields(t, "metadata.", metav1.ObjectMeta{}, namespaceFields)
}

func checkFields(t *testing.T, prefix string, object any, known []knownField) {
	t.Helper()
	for field := range reflect.TypeOf(object).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		isKnown := false
		for _, candidate := range known {
			isKnown = isKnown || candidate.path == prefix+name
		}
		if reason := unknownFieldError(prefix+name, known); name != "" && !isKnown && reason != "" {
			t.Errorf("%s%s: %s", prefix, name, reason)
		}
	}
}
