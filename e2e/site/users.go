package site

import (
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// Create creates objects, and fills in what the API server makes of them.
func (s *Site) Create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		must.Succeed(t, s.objects.Create(t.Context(), object))
	}
}

// Account returns the configuration of a client that is a ServiceAccount. It may do what the applied manifests say.
func (s *Site) Account(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	config, err := s.ServiceAccountConfig(t.Context(), namespace, name)
	must.Succeed(t, err)
	return config
}

// User returns the configuration of a client that may do what is in these rules, everywhere, and nothing else.
func (s *Site) User(t testing.TB, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	if len(rules) > 0 {
		s.Grant(t, name, rules...)
	}
	config, err := s.ClientConfig(name)
	must.Succeed(t, err)
	return config
}

// Grant lets a user do what is in these rules, everywhere.
func (s *Site) Grant(t testing.TB, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{GenerateName: user + "-"}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
	s.Create(t, role)
	s.Create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

// Kubeconfig writes the configuration of a client as the file of a program, and returns its path.
func Kubeconfig(t testing.TB, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, controlplane.WriteKubeconfig(path, config))
	return path
}
