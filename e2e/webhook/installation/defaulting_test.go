package installation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// The corpus tests which defaults apply to which object. These tests cover the ways in which objects are written.

// createDefaultingNamespace creates a Namespace with a default that needs no zones.
func createDefaultingNamespace(in *installation, name string) {
	in.createNamespace(name, nil, map[string]string{"vicinity.dev/default-topology-mode": "Disabled"})
}

func TestAFreshInstallationChangesNothing(t *testing.T) {
	// Stored once before the webhook is installed, and once after.
	var stored [2][]corev1.Service
	store := func(i int, namespace string) {
		shared.Create(t, objects.Namespace(namespace, nil, nil))
		for name, change := range map[string]func(*corev1.Service){
			"plain":    func(*corev1.Service) {},
			"nodeport": func(service *corev1.Service) { service.Spec.Type = corev1.ServiceTypeNodePort },
			"headless": func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone },
			"mode":     func(service *corev1.Service) { service.Annotations = map[string]string{modeAnnotation: "Auto"} },
			"keys":     func(service *corev1.Service) { service.Annotations = map[string]string{keysAnnotation: "*"} },
			"distribution": func(service *corev1.Service) {
				service.Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferClose) // all releases support it
			},
		} {
			service := serviceOf(name, nil)
			change(service)
			created, err := shared.Admin.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
			must.Succeed(t, err)
			stored[i] = append(stored[i], *created)
		}
	}
	store(0, "fresh-before")
	install(t, manifests, 1)
	store(1, "fresh-after")

	for _, services := range stored {
		slices.SortFunc(services, func(a, b corev1.Service) int { return strings.Compare(a.Name, b.Name) })
	}
	ignoredFields := []gocmp.Option{
		cmpopts.IgnoreFields(metav1.ObjectMeta{}, "Namespace", "UID", "ResourceVersion", "CreationTimestamp", "ManagedFields"),
		cmpopts.IgnoreFields(corev1.ServiceSpec{}, "ClusterIP", "ClusterIPs"),
		cmpopts.IgnoreFields(corev1.ServicePort{}, "NodePort"),
	}
	if diff := gocmp.Diff(stored[0], stored[1], ignoredFields...); diff != "" {
		t.Errorf("Services (-without +with the webhook):\n%s", diff)
	}
}

func TestADefaultAndTheWaysToWriteAnObject(t *testing.T) {
	in := install(t, manifests, 1)
	createDefaultingNamespace(in, "giving")
	services := in.Admin.CoreV1().Services("giving")
	expectMode := func(t *testing.T, service *corev1.Service, err error, want string) {
		t.Helper()
		must.Succeed(t, err)
		if got := service.Annotations[modeAnnotation]; got != want {
			t.Errorf("topology mode of %s: %q, want %q", service.Name, got, want)
		}
	}

	t.Run("repeated server-side apply keeps it, and no field manager owns it", func(t *testing.T) {
		object := `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "applied", "labels": {"round": "%d"}},
			"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}`
		for round := range 3 {
			applied, err := services.Patch(t.Context(), "applied", types.ApplyPatchType, fmt.Appendf(nil, object, round),
				metav1.PatchOptions{FieldManager: "a-user"})
			expectMode(t, applied, err, "Disabled")
			for _, manager := range applied.ManagedFields {
				if strings.Contains(manager.FieldsV1.GetRawString(), "topology-mode") {
					t.Errorf("%s owns the topology mode, want no owner", manager.Manager)
				}
			}
		}
	})
	t.Run("repeated client-side apply keeps it", func(t *testing.T) {
		manifest := in.writeFile("applied-again.yaml", `# Some versions of kubectl parse a file that begins with a brace as JSON.
apiVersion: v1
kind: Service
metadata: {name: applied-again, namespace: giving}
spec: {selector: {app: web}, ports: [{port: 80}]}
`)
		for range 2 {
			in.Kubectl(in.t, "apply", "-f", manifest)
			applied, err := services.Get(t.Context(), "applied-again", metav1.GetOptions{})
			expectMode(t, applied, err, "Disabled")
		}
	})
	t.Run("a PUT without it removes it", func(t *testing.T) {
		created, err := services.Create(t.Context(), serviceOf("put", nil), metav1.CreateOptions{})
		expectMode(t, created, err, "Disabled")
		put, err := services.Update(t.Context(), serviceOf("put", nil), metav1.UpdateOptions{})
		expectMode(t, put, err, "")
	})
	t.Run("a PUT of a Service that does not exist is a create", func(t *testing.T) {
		put, err := services.Update(t.Context(), serviceOf("put-anew", nil), metav1.UpdateOptions{})
		expectMode(t, put, err, "Disabled")
		invalid := serviceOf("put-wrong", map[string]string{keysAnnotation: "a b"})
		if _, err := services.Update(t.Context(), invalid, metav1.UpdateOptions{}); !slices.Equal(denyingRules(err), []string{"SVC003"}) {
			t.Errorf("a PUT of a new Service with a mistake: error %v, want a denial by SVC003", err)
		}
	})
	t.Run("a generated name", func(t *testing.T) {
		generated := serviceOf("", nil)
		generated.GenerateName = "made-up-"
		created, err := services.Create(t.Context(), generated, metav1.CreateOptions{})
		expectMode(t, created, err, "Disabled")
		if !strings.HasPrefix(created.Name, "made-up-") {
			t.Errorf("generated name %q", created.Name)
		}
		generated = serviceOf("", map[string]string{keysAnnotation: "a b"})
		generated.GenerateName = "made-up-"
		_, err = services.Create(t.Context(), generated, metav1.CreateOptions{})
		if !slices.Equal(denyingRules(err), []string{"SVC003"}) || !strings.Contains(err.Error(), "made-up-") {
			t.Errorf("a Service with a generated name and a mistake: error %v, want a denial by SVC003 that has the name", err)
		}
	})
	t.Run("other annotations stay", func(t *testing.T) {
		created, err := services.Create(t.Context(), serviceOf("annotated", map[string]string{"example.com/note": "x"}), metav1.CreateOptions{})
		expectMode(t, created, err, "Disabled")
		if created.Annotations["example.com/note"] != "x" {
			t.Errorf("the annotations are %v, want example.com/note among them", created.Annotations)
		}
	})
	t.Run("a new Service in a new Namespace", func(t *testing.T) {
		manifest := in.writeFile("both.yaml", `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: giving-anew, annotations: {vicinity.dev/default-topology-mode: Disabled}}}
- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: giving-anew}, spec: {selector: {app: web}, ports: [{port: 80}]}}
`)
		in.Kubectl(in.t, "create", "-f", manifest)
		created, err := in.Admin.CoreV1().Services("giving-anew").Get(t.Context(), "web", metav1.GetOptions{})
		expectMode(t, created, err, "Disabled")
	})
	t.Run("the audit log has the source", func(t *testing.T) {
		_, err := services.Create(t.Context(), serviceOf("audited", nil), metav1.CreateOptions{})
		must.Succeed(t, err)
		if got, want := defaultSource(in.auditOf(t, "create", "giving")), "topology-mode=Disabled; source: namespace"; got != want {
			t.Errorf("audit annotation %q, want %q", got, want)
		}
	})
}

func TestADryRunGetsAResponseAndHasNoEffects(t *testing.T) {
	in := install(t, manifests, 1)
	createDefaultingNamespace(in, "giving-dry")
	services, dryRun := in.Admin.CoreV1().Services("giving-dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

	created, err := services.Create(t.Context(), serviceOf("given", nil), dryRun)
	must.Succeed(t, err)
	if created.Annotations[modeAnnotation] != "Disabled" {
		t.Errorf("annotations %v, want the default", created.Annotations)
	}
	_, err = services.Create(t.Context(), serviceOf("denied", map[string]string{keysAnnotation: "a b"}), dryRun)
	if !slices.Equal(denyingRules(err), []string{"SVC003"}) {
		t.Errorf("a dry run with a mistake: error %v, want a denial by SVC003", err)
	}
	warned := send(t.Context(), t, in.Admin.CoreV1().RESTClient().Post().Namespace("giving-dry").Resource("services").Param("dryRun", "All"),
		map[string]any{
			"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"name": "warned", "annotations": map[string]any{keysAnnotation: "topology.kubernetes.io/zone"}},
			"spec":     map[string]any{"selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": 80}}},
		})
	if warned.err != nil || len(warned.findings) == 0 || warned.findings[0].Rule != "SVC027" {
		t.Errorf("got %s, want the warning SVC027", warned)
	}
	for _, name := range []string{"given", "denied", "warned"} {
		if _, err := services.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get %s: error %v, want NotFound", name, err)
		}
	}
}
