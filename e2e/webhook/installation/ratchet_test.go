package installation_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// storeBefore stores Services with two mistakes before it installs the webhook.
func storeBefore(t *testing.T, namespace string, names ...string) *installation {
	t.Helper()
	shared.Create(t, objects.Namespace(namespace, nil, nil))
	for _, name := range names {
		service := serviceOf(name, map[string]string{keysAnnotation: "a b, *", "vicinity.dev/nonsense": "x"})
		service.Finalizers = []string{"example.com/wait"}
		_, err := shared.Admin.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
		must.Succeed(t, err)
	}
	return install(t, manifests, 1)
}

func TestDeletingIsAlwaysAllowed(t *testing.T) {
	in := storeBefore(t, "deleting", "wrong", "patched")
	services := in.Admin.CoreV1().Services("deleting")
	before := in.reviews("/validate-services")
	for _, name := range []string{"wrong", "patched"} {
		must.Succeed(t, services.Delete(t.Context(), name, metav1.DeleteOptions{}))
		remaining, err := services.Get(t.Context(), name, metav1.GetOptions{})
		must.Succeed(t, err)
		if remaining.DeletionTimestamp == nil {
			t.Fatalf("%s is not being deleted", name)
		}
	}
	// An object that is being deleted may change in any way, even get a new mistake.
	_, err := services.Patch(t.Context(), "patched", types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"vicinity.dev/topology-keys": "c d"}}}`), metav1.PatchOptions{})
	must.Succeed(t, err)
	for _, name := range []string{"wrong", "patched"} {
		_, err := services.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		must.Succeed(t, err)
		if _, err := services.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s still exists: %v", name, err)
		}
	}
	if after := in.reviews("/validate-services"); after != before {
		t.Errorf("%v reviews, want none", after-before)
	}

	// The same holds for a Namespace.
	in.createNamespace("deleting-whole", nil, map[string]string{"vicinity.dev/default-topology-mode": "Disabled"})
	namespaces := in.Admin.CoreV1().Namespaces()
	must.Succeed(t, namespaces.Delete(t.Context(), "deleting-whole", metav1.DeleteOptions{}))
	_, err = namespaces.Patch(t.Context(), "deleting-whole", types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"vicinity.dev/default-topology-mode": "bogus"}}}`), metav1.PatchOptions{})
	must.Succeed(t, err)
	must.Succeed(t, in.finalize(t.Context(), "deleting-whole"))
}
