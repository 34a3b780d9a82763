// Package policies_test applies the CEL policies that can replace the webhook, as shipped, to a real API server, and
// makes the same requests as the webhook's tests.
package policies_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/e2e/webhook/release"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The folders have policies that the API server itself evaluates instead of calling the webhook.
const (
	folder   = "../../../manifests/webhook-cel"
	strict   = folder + "/strict"
	defaults = folder + "/defaults"
)

// TestPolicies applies the policies as shipped to a control plane of its own, with controllers: one of them checks the
// types in policies, and others write EndpointSlices. The order of the subtests matters, because they change the
// policies.
func TestPolicies(t *testing.T) {
	w := newTestbed(t)
	cases := w.locateCases()
	w.storeOld(cases)
	t.Run("applies as files and with kustomize", w.testApply)
	w.waitForAll()
	t.Run("cases", func(t *testing.T) { w.testCases(t, cases) })
	t.Run("types are correct", w.testTypes)
	t.Run("writing", w.testWriting)
	t.Run("deletion is never blocked", w.testDeletion)
	t.Run("opting out", w.testOptingOut)
	t.Run("Kubernetes controllers are not affected", w.testControllers)
	t.Run("large objects", w.testLargeObjects)
	t.Run("large EndpointSlices", w.testLargeSlice)
	t.Run("no expression fails", w.testNoExpressionFails)
	t.Run("a disabled rule", w.testRuleOff)
	t.Run("a proxy with a name", func(t *testing.T) { w.testNamedProxy(t, cases) })
	t.Run("defaults of the cluster", func(t *testing.T) { w.testClusterDefaults(t, cases) })
	t.Run("strict", func(t *testing.T) { w.testStrict(t, cases) })
	t.Run("removal", w.testRemoval)
}

// testbed is a control plane with the policies as shipped.
type testbed struct {
	*site.Site
	release.Release
	t *testing.T
}

func newTestbed(t *testing.T) *testbed {
	t.Helper()
	w := &testbed{Site: site.New(t, site.Config{Controllers: true}), t: t}
	w.Release = release.Of(t, w.Site)
	return w
}

// runBlock runs the commands of the README's block that contains a text, after changes. It returns their output.
func (w *testbed) runBlock(t *testing.T, text string, changes ...string) (string, error) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	must.Succeed(t, err)
	for _, block := range shellBlock.FindAllStringSubmatch(string(readme), -1) {
		if strings.Contains(block[1], text) {
			return w.Shell(t.Context(), strings.NewReplacer(changes...).Replace(w.dropLaterCommands(block[1])))
		}
	}
	t.Fatalf("the README has no commands with %q", text)
	return "", nil
}

// dropLaterCommands removes the README's commands that are for a later release.
func (w *testbed) dropLaterCommands(commands string) string {
	var kept strings.Builder
	for line := range strings.Lines(commands) {
		if w.IsAtLeast(release.HasMutatingPolicies) || !strings.Contains(line, fmt.Sprintf("1.%d and later", release.HasMutatingPolicies)) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// shellBlock matches commands in a README.
var shellBlock = regexp.MustCompile("(?s)\n *```sh\n(.*?)\n *```")

// mustRunBlock is like do, but fails the test if a command fails.
func (w *testbed) mustRunBlock(t *testing.T, text string, changes ...string) string {
	t.Helper()
	output, err := w.runBlock(t, text, changes...)
	must.Succeed(t, err)
	return output
}

// response is the result of a request.
type response struct {
	err        error
	stored     map[string]any // the object as stored, or as it would be
	violations []violation
}

// violation is a rule in a response, with the text around it.
type violation struct {
	rule   rules.ID
	action rules.Action
	text   string
}

// send creates, replaces or applies an object, depending on the verb.
func (w *testbed) send(t *testing.T, client rest.Interface, verb string, object map[string]any, parameters ...string) response {
	t.Helper()
	metadata := object["metadata"].(map[string]any)
	request := client.Verb(verb).Resource(resources[object["kind"].(string)])
	if namespace, ok := metadata["namespace"].(string); ok {
		request = request.Namespace(namespace)
	}
	if verb != http.MethodPost {
		request = request.Name(metadata["name"].(string))
	}
	for _, parameter := range parameters {
		name, value, _ := strings.Cut(parameter, "=")
		request = request.Param(name, value)
	}
	contentType := "application/json"
	if verb == http.MethodPatch {
		contentType = "application/apply-patch+yaml"
	}
	body, err := json.Marshal(object)
	must.Succeed(t, err)
	return readResponse(t, request.SetHeader("Content-Type", contentType).Body(body).Do(t.Context()))
}

var resources = map[string]string{
	"Service": "services", "Namespace": "namespaces", "Node": "nodes", "EndpointSlice": "endpointslices",
}

// rest returns the client for a kind of object.
func (w *testbed) rest(kind any) rest.Interface {
	if kind == "EndpointSlice" {
		return w.Admin.DiscoveryV1().RESTClient()
	}
	return w.Admin.CoreV1().RESTClient()
}

func (w *testbed) create(t *testing.T, object map[string]any, parameters ...string) response {
	t.Helper()
	return w.send(t, w.rest(object["kind"]), http.MethodPost, object, parameters...)
}

func (w *testbed) replace(t *testing.T, object map[string]any, parameters ...string) response {
	t.Helper()
	return w.send(t, w.rest(object["kind"]), http.MethodPut, object, parameters...)
}

// apply makes a server-side apply.
func (w *testbed) apply(t *testing.T, object map[string]any, parameters ...string) response {
	t.Helper()
	return w.send(t, w.rest(object["kind"]), http.MethodPatch, object, append(parameters, "fieldManager=policies")...)
}

func readResponse(t *testing.T, result rest.Result) response {
	t.Helper()
	response := response{err: result.Error()}
	if response.err == nil {
		text, err := result.Raw()
		must.Succeed(t, err)
		must.Succeed(t, json.Unmarshal(text, &response.stored))
	}
	if status, ok := errors.AsType[*apierrors.StatusError](response.err); ok {
		response.violations = violationsIn(status.ErrStatus.Message, rules.Deny)
		asKubernetes := status.ErrStatus.Code == http.StatusUnprocessableEntity && status.ErrStatus.Reason == metav1.StatusReasonInvalid
		if len(response.violations) > 0 && !asKubernetes {
			t.Errorf("denied with code %d and reason %s, want those of an invalid object", status.ErrStatus.Code, status.ErrStatus.Reason)
		}
	}
	for _, warning := range result.Warnings() {
		response.violations = append(response.violations, violationsIn(warning.Text, rules.Warn)...)
	}
	return response
}

// ruleMark matches the end of each rule's text.
var ruleMark = regexp.MustCompile(`\[([A-Z]+\d{3})\]`)

func violationsIn(text string, action rules.Action) []violation {
	var violations []violation
	for _, found := range ruleMark.FindAllStringSubmatch(text, -1) {
		violations = append(violations, violation{rule: rules.ID(found[1]), action: action, text: text})
	}
	return violations
}

// reports reports whether a response contains a rule.
func (r response) reports(rule rules.ID) bool {
	for _, v := range r.violations {
		if v.rule == rule {
			return true
		}
	}
	return false
}

func (r response) String() string {
	var lines []string
	for _, v := range r.violations {
		lines = append(lines, fmt.Sprintf("%s %s: %s", v.action, v.rule, v.text))
	}
	return fmt.Sprintf("error: %v\n%s", r.err, strings.Join(lines, "\n"))
}

// serviceOf returns an ordinary Service, modified by changes.
func serviceOf(namespace, name string, changes ...func(metadata, spec map[string]any)) map[string]any {
	metadata := map[string]any{"namespace": namespace, "name": name}
	spec := map[string]any{"selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": 80}}}
	for _, change := range changes {
		change(metadata, spec)
	}
	return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
}

// annotated adds an annotation to a Service.
func annotated(key, value string) func(metadata, spec map[string]any) {
	return func(metadata, _ map[string]any) {
		annotations, _ := metadata["annotations"].(map[string]any)
		if annotations == nil {
			annotations = map[string]any{}
		}
		annotations[key] = value
		metadata["annotations"] = annotations
	}
}

// createNamespace creates a Namespace with a case's labels and annotations.
func (w *testbed) createNamespace(t *testing.T, name string, content *rulecases.Namespace) {
	t.Helper()
	metadata := map[string]any{"name": name}
	if content != nil {
		metadata["labels"], metadata["annotations"] = content.Labels, content.Annotations
	}
	response := w.create(t, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
	must.Succeed(t, response.err)
}
