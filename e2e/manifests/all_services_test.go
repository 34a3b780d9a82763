package manifests_test

import (
	"errors"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestNewServicesGetTheServiceProxyName applies all-services. It must not change Services that need no proxy, and those
// that opt out or already have a proxy's name.
func TestNewServicesGetTheServiceProxyName(t *testing.T) {
	api := site.New(t, site.Config{})
	api.Kubectl(t, "apply", "-k", filepath.Join(besideKubeProxy, "all-services"))
	create := func(namespace string, change func(*corev1.Service)) *corev1.Service {
		t.Helper()
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		change(service)
		created, err := api.Admin.CoreV1().Services(namespace).Create(t.Context(), service,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		must.Succeed(t, err)
		return created
	}
	optedOut := map[string]string{policy.AdmissionLabel: policy.AdmissionDisabled}
	optedOutNamespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "opted-out", Labels: optedOut}}
	_, err := api.Admin.CoreV1().Namespaces().Create(t.Context(), optedOutNamespace, metav1.CreateOptions{})
	must.Succeed(t, err)
	wait.Success(t, "the policy is active", func() error {
		if create("default", func(*corev1.Service) {}).Labels[policy.ServiceProxyNameLabel] != "vicinity" {
			return errors.New("a new Service is left to kube-proxy")
		}
		return nil
	})
	labelled := func(key, value string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Labels = map[string]string{key: value} }
	}
	for name, test := range map[string]struct {
		namespace string
		change    func(*corev1.Service)
		want      string
	}{
		"has other labels":    {"default", labelled("app", "web"), "vicinity"},
		"names its proxy":     {"default", labelled(policy.ServiceProxyNameLabel, "other"), "other"},
		"opted out":           {"default", labelled(policy.AdmissionLabel, policy.AdmissionDisabled), ""},
		"headless":            {"default", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, ""},
		"ExternalName":        {"default", func(s *corev1.Service) { s.Spec.Type, s.Spec.ExternalName = "ExternalName", "a.example" }, ""},
		"in kube-system":      {"kube-system", func(*corev1.Service) {}, ""},
		"Namespace opted out": {"opted-out", func(*corev1.Service) {}, ""},
		"LoadBalancer":        {"default", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }, "vicinity"},
	} {
		if got := create(test.namespace, test.change).Labels[policy.ServiceProxyNameLabel]; got != test.want {
			t.Errorf("%s: service proxy name %q, want %q", name, got, test.want)
		}
	}
}
