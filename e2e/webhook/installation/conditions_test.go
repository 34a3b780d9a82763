package installation_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// countReviews has the number of reviews by each webhook.
type reviewCounts struct{ defaults, services, namespaces float64 }

func (in *installation) countReviews() reviewCounts {
	in.t.Helper()
	return reviewCounts{in.reviews("/default-services"), in.reviews("/validate-services"), in.reviews("/validate-namespaces")}
}

// reviewsSince counts again until the counts are as expected, because a review is counted after its response was sent.
func (in *installation) reviewsSince(before, want reviewCounts) (got reviewCounts) {
	in.t.Helper()
	wait.Success(in.t, "the reviews are counted", func() error {
		now := in.countReviews()
		got = reviewCounts{now.defaults - before.defaults, now.services - before.services, now.namespaces - before.namespaces}
		if got.defaults < want.defaults || got.services < want.services || got.namespaces < want.namespaces {
			return fmt.Errorf("reviews %s, want %s", got, want)
		}
		return nil
	})
	return got
}

// TestTheAPIServerCallsTheWebhookOnlyWhereNeeded counts calls, because a client waits for each of them.
func TestTheAPIServerCallsTheWebhookOnlyWhereNeeded(t *testing.T) {
	in := install(t, manifests, 1)
	in.createNamespace("reviewed", nil, nil)
	in.createNamespace("opted-out", map[string]string{"vicinity.dev/admission": "disabled"}, nil)
	invalid := map[string]string{keysAnnotation: "topology.kubernetes.io/zone"} // triggers a warning
	services := in.Admin.CoreV1().Services("reviewed")
	create := func(namespace string, service *corev1.Service) error {
		_, err := in.Admin.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
		return err
	}
	patch := func(name, text string, subresources ...string) error {
		_, err := services.Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
		return err
	}
	labelled := serviceOf("labelled", invalid)
	labelled.Labels = map[string]string{"vicinity.dev/admission": "disabled"}
	manyLabels := serviceOf("crowded", nil)
	manyLabels.Labels = map[string]string{}
	for i := range 1001 {
		manyLabels.Labels[fmt.Sprintf("example.com/label-%d", i)] = ""
	}
	externalName := serviceOf("outside", nil)
	externalName.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}
	headless := serviceOf("headless", nil)
	headless.Spec.ClusterIP = corev1.ClusterIPNone

	for _, step := range []struct {
		desc string
		do   func() error
		want reviewCounts
	}{
		{"a create without topology settings", func() error { return create("reviewed", serviceOf("plain", nil)) }, reviewCounts{defaults: 1}},
		{"its update", func() error { return patch("plain", `{"spec": {"sessionAffinity": "ClientIP"}}`) }, reviewCounts{}},
		{"its labels", func() error { return patch("plain", `{"metadata": {"labels": {"app": "x"}}}`) }, reviewCounts{}},
		{"its deletion", func() error { return services.Delete(t.Context(), "plain", metav1.DeleteOptions{}) }, reviewCounts{}},
		{"a create with topology keys", func() error { return create("reviewed", serviceOf("keyed", invalid)) }, reviewCounts{services: 1}},
		{"an update that changes nothing", func() error { return patch("keyed", `{}`) }, reviewCounts{}},
		{"its finalizers", func() error { return patch("keyed", `{"metadata": {"finalizers": ["example.com/wait"]}}`) }, reviewCounts{}},
		{"its status", func() error {
			return patch("keyed", `{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "",
				"lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
		}, reviewCounts{}},
		{"its update", func() error { return patch("keyed", `{"spec": {"sessionAffinity": "ClientIP"}}`) }, reviewCounts{services: 1}},
		{"its annotations", func() error {
			return patch("keyed", `{"metadata": {"annotations": {"example.com/note": "x"}}}`)
		}, reviewCounts{services: 1}},
		{"its deletion, with a finalizer", func() error { return services.Delete(t.Context(), "keyed", metav1.DeleteOptions{}) }, reviewCounts{}},
		{"the end of its deletion", func() error { return patch("keyed", `{"metadata": {"finalizers": null}}`) }, reviewCounts{}},
		{"a Service that opts out", func() error { return create("reviewed", labelled) }, reviewCounts{}},
		// When a user removes the label, the response reports what it has hidden.
		{"one that opts in again", func() error {
			return patch("labelled", `{"metadata": {"labels": {"vicinity.dev/admission": null}}}`)
		}, reviewCounts{services: 1}},
		{"one that opts out", func() error {
			return patch("labelled", `{"metadata": {"labels": {"vicinity.dev/admission": "disabled"}}}`)
		}, reviewCounts{}},
		{"more labels than the match condition can evaluate", func() error { return create("reviewed", manyLabels) },
			reviewCounts{defaults: 1, services: 1}},
		{"a Namespace that opts out", func() error { return create("opted-out", serviceOf("keyed", invalid)) }, reviewCounts{}},
		{"and a create without settings in it", func() error { return create("opted-out", serviceOf("plain", nil)) }, reviewCounts{}},
		{"kube-system", func() error { return create("kube-system", serviceOf("keyed", invalid)) }, reviewCounts{}},
		{"kube-public", func() error { return create("kube-public", serviceOf("plain", nil)) }, reviewCounts{}},
		{"the webhook's own Namespace", func() error { return create(installedNamespace, serviceOf("keyed", invalid)) }, reviewCounts{}},
		{"an ExternalName", func() error { return create("reviewed", externalName) }, reviewCounts{}},
		{"a headless Service", func() error { return create("reviewed", headless) }, reviewCounts{}},
		{"an EndpointSlice", func() error { return in.putSlice(t.Context(), []string{in.running()[0].pod.IPv4.String()}) }, reviewCounts{}},
		{"a Namespace without defaults", func() error { in.createNamespace("without-default", nil, nil); return nil }, reviewCounts{}},
		{"a Namespace with a default", func() error {
			in.createNamespace("with-default", nil, map[string]string{"vicinity.dev/default-topology-mode": "Disabled"})
			return nil
		}, reviewCounts{namespaces: 1}},
		{"a Namespace that opts out and has a setting", func() error {
			in.createNamespace("opted-out-with-setting", map[string]string{"vicinity.dev/admission": "disabled"},
				map[string]string{"vicinity.dev/x": "y"})
			return nil
		}, reviewCounts{}},
		{"another label of a Namespace", func() error {
			_, err := in.Admin.CoreV1().Namespaces().Patch(t.Context(), "without-default", types.MergePatchType,
				[]byte(`{"metadata": {"labels": {"team": "a"}}}`), metav1.PatchOptions{})
			return err
		}, reviewCounts{}},
	} {
		before := in.countReviews()
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.desc, err)
		}
		if got := in.reviewsSince(before, step.want); got != step.want {
			t.Errorf("%s: reviews %s, want %s", step.desc, got, step.want)
		}
	}
	for _, namespace := range []string{"kube-system", installedNamespace} {
		must.Succeed(t, in.Admin.CoreV1().Services(namespace).Delete(t.Context(), "keyed", metav1.DeleteOptions{}))
	}
	must.Succeed(t, in.Admin.CoreV1().Services("kube-public").Delete(t.Context(), "plain", metav1.DeleteOptions{}))
}

func (a reviewCounts) String() string {
	return fmt.Sprintf("(defaults %v, Services %v, Namespaces %v)", a.defaults, a.services, a.namespaces)
}
