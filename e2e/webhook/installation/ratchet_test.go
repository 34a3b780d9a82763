package installation_test

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// storeBefore stores Services with two mistakes while there is no webhook, and then installs it.
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

// TestOnlyNewMistakesAreDenied goes through the ways in which a Service with two mistakes can be changed.
func TestOnlyNewMistakesAreDenied(t *testing.T) {
	changes := []struct {
		name, patch string
		want        []string // the rules by which it is denied
	}{
		{"nothing", `{}`, nil},
		{"something else", `{"spec": {"sessionAffinity": "ClientIP"}}`, nil},
		{"a label", `{"metadata": {"labels": {"app": "x"}}}`, nil},
		{"another annotation", `{"metadata": {"annotations": {"example.com/note": "x"}}}`, nil},
		{"one of the two is mended", `{"metadata": {"annotations": {"vicinity.dev/topology-keys": "*"}}}`, nil},
		{"the other one is mended", `{"metadata": {"annotations": {"vicinity.dev/nonsense": null}}}`, nil},
		{"both are", `{"metadata": {"annotations": {"vicinity.dev/topology-keys": null, "vicinity.dev/nonsense": null}}}`, nil},
		{"the same mistake in other words", `{"metadata": {"annotations": {"vicinity.dev/topology-keys": "c d, *"}}}`, []string{"SVC003"}},
		{"one for another", `{"metadata": {"annotations": {"vicinity.dev/topology-keys": "a.io/a, a.io/a, *"}}}`, []string{"SVC004"}},
		{"a third one", `{"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "AUTO"}}}`, []string{"SVC008"}},
		{"a field that an annotation contradicts", `{"spec": {"type": "NodePort", "externalTrafficPolicy": "Local"}}`, []string{"SVC006"}},
	}
	in := storeBefore(t, "ratchet", "wrong")
	services := in.Admin.CoreV1().Services("ratchet")
	for _, change := range changes {
		t.Run(change.name, func(t *testing.T) {
			_, err := services.Patch(t.Context(), "wrong", types.MergePatchType, []byte(change.patch),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if got := isDenied(err); !slices.Equal(got, change.want) || err != nil && len(change.want) == 0 {
				t.Errorf("denied by %v, want %v: %v", got, change.want, err)
			}
		})
	}
}

func TestDeletingIsAlwaysAllowed(t *testing.T) {
	in := storeBefore(t, "deleting", "wrong", "patched")
	services := in.Admin.CoreV1().Services("deleting")
	before := in.reviews("/validate-services")
	for _, name := range []string{"wrong", "patched"} {
		must.Succeed(t, services.Delete(t.Context(), name, metav1.DeleteOptions{}))
		left, err := services.Get(t.Context(), name, metav1.GetOptions{})
		must.Succeed(t, err)
		if left.DeletionTimestamp == nil {
			t.Fatalf("%s is not being deleted", name)
		}
	}
	// Whatever happens to what is being deleted, a new mistake too.
	_, err := services.Patch(t.Context(), "patched", types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"vicinity.dev/topology-keys": "c d"}}}`), metav1.PatchOptions{})
	must.Succeed(t, err)
	for _, name := range []string{"wrong", "patched"} {
		_, err := services.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		must.Succeed(t, err)
		if _, err := services.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	if after := in.reviews("/validate-services"); after != before {
		t.Errorf("%v reviews were asked for", after-before)
	}

	// So with a Namespace.
	in.namespace("deleting-whole", nil, map[string]string{"vicinity.dev/default-topology-mode": "Disabled"})
	namespaces := in.Admin.CoreV1().Namespaces()
	must.Succeed(t, namespaces.Delete(t.Context(), "deleting-whole", metav1.DeleteOptions{}))
	_, err = namespaces.Patch(t.Context(), "deleting-whole", types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"vicinity.dev/default-topology-mode": "bogus"}}}`), metav1.PatchOptions{})
	must.Succeed(t, err)
	must.Succeed(t, in.finalize(t.Context(), "deleting-whole"))
}
