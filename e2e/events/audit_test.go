package events_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// account is the proxy's user name at the API server.
const account = "system:serviceaccount:" + accountNamespace + ":" + accountName

// auditPolicy makes the API server log each request of the proxy, and the response status.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + account + `"]}
- {level: None}
`

// permission returns the permission that RBAC checks for a request: "watch /services". For a non-resource request it
// contains the path.
func permission(r site.Request) string {
	if r.ObjectRef == nil {
		return r.Verb + " " + r.RequestURI
	}
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return r.Verb + " " + r.ObjectRef.APIGroup + "/" + resource
}

// expectOnlyGrantedRequests compares the proxy's requests in the audit log with its ClusterRole.
func (n *node) expectOnlyGrantedRequests() {
	n.t.Helper()
	granted := n.granted()
	// Stop the proxy first, so that all lines are complete.
	must.Succeed(n.t, n.proxy.Stop(time.Minute))
	must.Succeed(n.t, n.api.StopAPIServer())
	used := map[string]bool{}
	requests, err := n.api.Audited()
	must.Succeed(n.t, err)
	for _, request := range requests {
		if request.User.Username != account {
			n.t.Errorf("the audit log has a request of %q", request.User.Username)
		}
		used[permission(request)] = true
		if code := request.ResponseStatus.Code; code == http.StatusForbidden || code == http.StatusUnauthorized {
			n.t.Errorf("%s got status %d", permission(request), code)
		}
	}
	beyond := slices.DeleteFunc(slices.Sorted(maps.Keys(used)), func(permission string) bool { return granted[permission] })
	if len(beyond) > 0 {
		n.t.Errorf("requests beyond its ClusterRole: %q", beyond)
	}
	// This ensures that the audit log is the right one. The proxy lists only if the API server cannot start a watch with
	// the existing objects, which 1.36 can.
	isList := func(permission string, _ bool) bool { return strings.HasPrefix(permission, "list ") }
	maps.DeleteFunc(granted, isList)
	maps.DeleteFunc(used, isList)
	if diff := cmp.Diff(granted, used); diff != "" {
		n.t.Errorf("permissions other than list differ (-granted +used):\n%s", diff)
	}
}

// granted returns the permissions in the proxy's ClusterRole, as the API server has it.
func (n *node) granted() map[string]bool {
	n.t.Helper()
	role, err := n.api.Admin.RbacV1().ClusterRoles().Get(n.t.Context(), accountName, metav1.GetOptions{})
	must.Succeed(n.t, err)
	granted := map[string]bool{}
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[verb+" "+group+"/"+resource] = true
				}
			}
		}
	}
	return granted
}
