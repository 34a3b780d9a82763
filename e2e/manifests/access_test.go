package manifests_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// allowed are all requests that the proxy makes to the API server.
var allowed = []string{
	"create events.k8s.io/events",
	"list /nodes",
	"list /services",
	"list discovery.k8s.io/endpointslices",
	"list networking.k8s.io/servicecidrs",
	"watch /nodes",
	"watch /services",
	"watch discovery.k8s.io/endpointslices",
	"watch networking.k8s.io/servicecidrs",
}

func TestTheRoleAllowsExactlyWhatTheProxyDoes(t *testing.T) {
	var got []string
	for _, rule := range only(t, plain(t, folder).ClusterRoles).Rules {
		if len(rule.NonResourceURLs)+len(rule.ResourceNames) > 0 {
			t.Errorf("rule %+v has non-resource URLs or resource names", rule)
		}
		got = append(got, permissions(rule.Verbs, rule.APIGroups, rule.Resources)...)
	}
	slices.Sort(got)
	if diff := cmp.Diff(allowed, got); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
}

// permissions returns the permissions of an RBAC rule: every verb on every resource in every group.
func permissions(verbs, groups, resources []string) []string {
	var all []string
	for _, verb := range verbs {
		for _, group := range groups {
			for _, resource := range resources {
				all = append(all, verb+" "+group+"/"+resource)
			}
		}
	}
	return all
}

func TestARealAPIServerTakesTheManifests(t *testing.T) {
	// As with kubeadm. Our pods do not need it, but the pods that clean up after kube-proxy do.
	api := site.New(t, site.Config{Flags: []string{"--allow-privileged"}})

	t.Run("kubectl apply -f creates all objects, and apply -k the same ones", func(t *testing.T) {
		for _, test := range []struct {
			how  []string
			want map[string]int
		}{
			{[]string{"apply", "-f", folder + "/"}, map[string]int{"created": 6}},
			{[]string{"apply", "-f", folder + "/"}, map[string]int{"unchanged": 6}},
			{[]string{"apply", "-k", folder}, map[string]int{"unchanged": 6}},
			{[]string{"apply", "-k", besideKubeProxy}, map[string]int{"unchanged": 4, "configured": 2}},
			{[]string{"apply", "-k", folder}, map[string]int{"unchanged": 4, "configured": 2}},
		} {
			if diff := cmp.Diff(test.want, outcomes(api.Kubectl(t, test.how...))); diff != "" {
				t.Errorf("kubectl %v (-want +got):\n%s", test.how, diff)
			}
		}
	})
	t.Run("the ServiceAccount has exactly the permissions that the proxy needs", func(t *testing.T) {
		testServiceAccount(t, api)
	})
	t.Run("the proxy sends exactly the requests that it is permitted", func(t *testing.T) {
		testRequests(t, api)
	})
	t.Run("the README's commands create a cleanup Job for every node", func(t *testing.T) {
		testCleanup(t, api)
	})
}

// outcomes counts the last words of kubectl's lines.
func outcomes(output string) map[string]int {
	counts := map[string]int{}
	for line := range strings.Lines(output) {
		words := strings.Fields(line)
		counts[words[len(words)-1]]++
	}
	return counts
}

// testServiceAccount compares the rights of the proxy at the API server with those of any ServiceAccount.
func testServiceAccount(t *testing.T, api *site.Site) {
	api.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "without-rights"}})
	got := rights(t, api, "vicinity-proxy")
	for right := range rights(t, api, "without-rights") {
		delete(got, right)
	}
	if diff := cmp.Diff(allowed, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("permissions beyond those of any ServiceAccount (-want +got):\n%s", diff)
	}
}

// rights returns the rights of a ServiceAccount in its own namespace, according to the API server.
func rights(t *testing.T, api *site.Site, name string) map[string]bool {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.Account(t, "kube-system", name))
	must.Succeed(t, err)
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "kube-system"}}
	result, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	must.Succeed(t, err)
	if result.Status.Incomplete {
		t.Fatalf("the review is incomplete: %s", result.Status.EvaluationError)
	}
	rights := map[string]bool{}
	for _, rule := range result.Status.ResourceRules {
		for _, permission := range permissions(rule.Verbs, rule.APIGroups, rule.Resources) {
			rights[permission] = true
		}
	}
	return rights
}

// TestTheDemandComponentLetsProxiesReadServiceDemands also covers the one Lease that shows whether the demand is
// current.
func TestTheDemandComponentLetsProxiesReadServiceDemands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "webhook", "components", "demand", "proxies.yaml"))
	must.Succeed(t, err)
	var clusterRole rbacv1.ClusterRole
	var role rbacv1.Role
	var clusterRoleBinding rbacv1.ClusterRoleBinding
	var roleBinding rbacv1.RoleBinding
	for kind, into := range map[string]any{
		"ClusterRole": &clusterRole, "Role": &role, "ClusterRoleBinding": &clusterRoleBinding, "RoleBinding": &roleBinding,
	} {
		parseOnly(t, string(text), kind, into)
	}
	list := rbacv1.PolicyRule{
		Verbs: []string{"list", "watch"}, APIGroups: []string{v1alpha1.SchemeGroupVersion.Group},
		Resources: []string{v1alpha1.ServiceDemandResource},
	}
	get := rbacv1.PolicyRule{
		Verbs: []string{"get"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		ResourceNames: []string{v1alpha1.DemandLeaseName},
	}
	if diff := cmp.Diff([][]rbacv1.PolicyRule{{list}, {get}}, [][]rbacv1.PolicyRule{clusterRole.Rules, role.Rules}); diff != "" {
		t.Errorf("rules of the ClusterRole and the Role (-want +got):\n%s", diff)
	}
	proxies := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "vicinity-proxy"}}
	if diff := cmp.Diff([][]rbacv1.Subject{proxies, proxies},
		[][]rbacv1.Subject{clusterRoleBinding.Subjects, roleBinding.Subjects}); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	names := []string{clusterRoleBinding.RoleRef.Name, roleBinding.RoleRef.Name, role.Namespace, roleBinding.Namespace}
	if diff := cmp.Diff([]string{clusterRole.Name, role.Name, "vicinity-system", "vicinity-system"}, names); diff != "" {
		t.Errorf("role references and namespaces (-want +got):\n%s", diff)
	}
}
