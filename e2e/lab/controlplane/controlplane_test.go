package controlplane_test

import (
	"os"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// start starts a control plane for a test.
func start(t *testing.T, config controlplane.Config) *controlplane.ControlPlane {
	t.Helper()
	programs, err := binaries.Build(t.Context(), os.Stderr, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	config.Dir, config.Programs = t.TempDir(), programs
	begin := time.Now()
	c, err := controlplane.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the API server was ready after %s", time.Since(begin))
	t.Cleanup(c.Stop)
	return c
}

func newClient(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAnAPIServerIsOneOfARealCluster(t *testing.T) {
	c := start(t, controlplane.Config{})
	admin := newClient(t, c.AdminConfig())

	t.Run("it reports its version", func(t *testing.T) {
		version, err := admin.Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if version.Major != "1" || version.Minor != "37" {
			t.Errorf("version %s.%s (%s), want 1.37", version.Major, version.Minor, version.GitVersion)
		}
	})
	t.Run("Services get addresses of both families", func(t *testing.T) {
		policy := corev1.IPFamilyPolicyRequireDualStack
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       corev1.ServiceSpec{IPFamilyPolicy: &policy, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		got, err := admin.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Spec.ClusterIPs) != 2 {
			t.Errorf("ClusterIPs %v, want two", got.Spec.ClusterIPs)
		}
	})
	t.Run("a user has exactly the rights that RBAC grants", func(t *testing.T) {
		testUser(t, c, admin)
	})
	t.Run("a token authenticates a ServiceAccount", func(t *testing.T) {
		testServiceAccount(t, c, admin)
	})
}

func testUser(t *testing.T, c *controlplane.ControlPlane, admin kubernetes.Interface) {
	config, err := c.ClientConfig("jane", "developers")
	if err != nil {
		t.Fatal(err)
	}
	jane := newClient(t, config)
	if _, err := jane.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list Services without a role: got %v, want Forbidden", err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list"}}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "developers-read"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "developers"}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "developers may list Services", func() bool {
		_, err := jane.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	if err := jane.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete a Service with a role that may only list: got %v, want Forbidden", err)
	}
}

func testServiceAccount(t *testing.T, c *controlplane.ControlPlane, admin kubernetes.Interface) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	if _, err := admin.CoreV1().ServiceAccounts("kube-system").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := c.ServiceAccountConfig(t.Context(), "kube-system", "reader")
	if err != nil {
		t.Fatal(err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"},
	}}
	response, err := newClient(t, config).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if response.Status.Allowed {
		t.Error("a ServiceAccount without a role may list Secrets")
	}
}

func TestAnAPIServerKeepsItsDataWhenItIsKilledAndStartedAgain(t *testing.T) {
	c := start(t, controlplane.Config{})
	admin := newClient(t, c.AdminConfig())
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	c.KillAPIServer()
	if _, err := admin.Discovery().ServerVersion(); err == nil {
		t.Fatal("a killed API server still responds")
	}
	if err := c.StartAPIServer(t.Context(), "--feature-gates=AllAlpha=false"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("read the ConfigMap after the API server was killed: %v", err)
	}

	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("read the ConfigMap after the API server was stopped: %v", err)
	}
}

func TestAnAPIServerThatCannotStartReportsWhy(t *testing.T) {
	programs, err := binaries.Build(t.Context(), os.Stderr, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	config := controlplane.Config{Dir: t.TempDir(), Programs: programs, APIServerFlags: []string{"--no-such-flag"}}
	c, err := controlplane.Start(t.Context(), config)
	if err == nil {
		c.Stop()
		t.Fatal("an API server with an unknown flag started")
	}
	if !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("the error does not contain the API server's output: %v", err)
	}
}

func TestControllersMakeEndpointSlicesOfServices(t *testing.T) {
	c := start(t, controlplane.Config{Controllers: true})
	admin := newClient(t, c.AdminConfig())
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := admin.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	selectWeb := metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"}
	wait.Until(t, "the Service has an EndpointSlice", func() bool {
		slices, err := admin.DiscoveryV1().EndpointSlices("default").List(t.Context(), selectWeb)
		return err == nil && len(slices.Items) > 0
	})
}
