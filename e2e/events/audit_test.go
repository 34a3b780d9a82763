package events_test

import (
	"bufio"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// account is how the API server knows the proxy.
const account = "system:serviceaccount:" + accountNamespace + ":" + accountName

// auditOfTheProxy has the API server write down each request of the proxy, and how it was answered.
const auditOfTheProxy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + account + `"]}
- {level: None}
`

// request is a line of the audit log (k8s.io/apiserver/pkg/apis/audit/v1), as far as it matters here.
type request struct {
	User       struct{ Username string }
	Verb       string
	RequestURI string
	ObjectRef  *struct{ APIGroup, Resource, Subresource string }
	// ResponseStatus is how it was answered.
	ResponseStatus struct{ Code int }
}

// permission is what RBAC is asked for the request: "watch /services". What is no resource is named by its path.
func (r request) permission() string {
	if r.ObjectRef == nil {
		return r.Verb + " " + r.RequestURI
	}
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return r.Verb + " " + r.ObjectRef.APIGroup + "/" + resource
}

// mayDoAllItDid compares what the audit log says that the proxy did with its ClusterRole.
func (s *site) mayDoAllItDid() {
	s.t.Helper()
	granted := s.granted()
	// So that all lines are there, to their ends.
	must(s.t, s.proxy.Stop(time.Minute))
	must(s.t, s.plane.StopAPIServer())
	used := map[string]bool{}
	for _, request := range s.requests() {
		used[request.permission()] = true
		if code := request.ResponseStatus.Code; code == http.StatusForbidden || code == http.StatusUnauthorized {
			s.t.Errorf("%s was answered %d", request.permission(), code)
		}
	}
	beyond := slices.DeleteFunc(slices.Sorted(maps.Keys(used)), func(permission string) bool { return granted[permission] })
	if len(beyond) > 0 {
		s.t.Errorf("beyond its ClusterRole it did %q", beyond)
	}
	// So that this looks at the right lines. The proxy lists only at an API server that cannot begin a watch with what there is, which
	// 1.36 can.
	isList := func(permission string, _ bool) bool { return strings.HasPrefix(permission, "list ") }
	maps.DeleteFunc(granted, isList)
	maps.DeleteFunc(used, isList)
	if diff := cmp.Diff(granted, used); diff != "" {
		s.t.Errorf("permissions but those to list (-granted +used):\n%s", diff)
	}
}

// requests returns what the proxy asked so far.
func (s *site) requests() []request {
	s.t.Helper()
	file, err := os.Open(s.audit)
	must(s.t, err)
	defer file.Close()
	var requests []request
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var next request
		must(s.t, json.Unmarshal(lines.Bytes(), &next))
		if next.User.Username != account {
			s.t.Errorf("the audit log has a request of %q", next.User.Username)
		}
		requests = append(requests, next)
	}
	must(s.t, lines.Err())
	return requests
}

// granted returns what the ClusterRole of the proxy allows, as the API server has it.
func (s *site) granted() map[string]bool {
	s.t.Helper()
	role, err := s.admin.RbacV1().ClusterRoles().Get(s.t.Context(), accountName, metav1.GetOptions{})
	must(s.t, err)
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
