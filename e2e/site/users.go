package site

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// Create creates objects, and updates them with the API server's response.
func (s *Site) Create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		must.Succeed(t, s.objects.Create(t.Context(), object))
	}
}

// Account returns the configuration of a client that authenticates as a ServiceAccount, with the rights in the applied
// manifests.
func (s *Site) Account(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	s.waitForRoles(t)
	config, err := s.ServiceAccountConfig(t.Context(), namespace, name)
	must.Succeed(t, err)
	return config
}

// User returns the configuration of a client that may do what these rules allow, in all namespaces, and nothing else.
func (s *Site) User(t testing.TB, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	if len(rules) > 0 {
		s.Grant(t, name, rules...)
	}
	config, err := s.ClientConfig(name)
	must.Succeed(t, err)
	return config
}

// Grant lets a user do what these rules allow, in all namespaces.
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
	s.waitForRoles(t)
}

// waitForRoles waits until all written roles and bindings are effective. The API server's authorizer receives them from
// four watches, each in the order of the writes: when it has the last ones, it has all others.
func (s *Site) waitForRoles(t testing.TB) {
	t.Helper()
	const namespace, clusterGroup, namespaceGroup = metav1.NamespaceDefault, "everywhere.example", "there.example"
	user := fmt.Sprint("newcomer-", s.probeUsers.Add(1))
	meta := metav1.ObjectMeta{Name: user}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	rules := func(group string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"any"}, Verbs: []string{"get"}}}
	}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: user}
	}
	inNamespace := metav1.ObjectMeta{Name: user, Namespace: namespace}
	probes := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules(clusterGroup)},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref("ClusterRole"), Subjects: subjects},
		&rbacv1.Role{ObjectMeta: inNamespace, Rules: rules(namespaceGroup)},
		&rbacv1.RoleBinding{ObjectMeta: inNamespace, RoleRef: ref("Role"), Subjects: subjects},
	}
	for _, object := range probes { // an API server creates its first namespaces after it is ready
		wait.Success(t, "create the roles", func() error { return s.objects.Create(t.Context(), object) })
	}
	for _, group := range []string{clusterGroup, namespaceGroup} {
		wait.Success(t, "the roles are effective", func() error {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: "get", Group: group, Resource: "any",
				},
			}}
			got, err := s.Admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			if err == nil && !got.Status.Allowed {
				err = errors.New("the last roles are not effective yet")
			}
			return err
		})
	}
	for _, object := range probes {
		must.Succeed(t, s.objects.Delete(t.Context(), object))
	}
}

// Kubeconfig writes the configuration of a client as a kubeconfig file, and returns its path.
func Kubeconfig(t testing.TB, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, controlplane.WriteKubeconfig(path, config))
	return path
}
