package admission_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The twin: policies that the API server itself evaluates, in place of the webhook.
const (
	twinFolder   = "../../manifests/webhook-cel"
	twinStrict   = twinFolder + "/strict"
	twinDefaults = twinFolder + "/defaults"
)

// TestTheTwin applies the policies as shipped to a control plane of its own, with controllers: one of them checks the types in policies,
// and others write EndpointSlices. What the parts do to the policies, they do in this order.
func TestTheTwin(t *testing.T) {
	w := newTwin(t)
	cases := w.place()
	w.storeOld(cases)
	t.Run("applies as files and with kustomize", w.testApply)
	w.awaitAll()
	t.Run("cases", func(t *testing.T) { w.testCases(t, cases) })
	t.Run("types are right", w.testTypes)
	t.Run("writing", w.testWriting)
	t.Run("deletion is never blocked", w.testDeletion)
	t.Run("opting out", w.testOptingOut)
	t.Run("controllers of Kubernetes are left alone", w.testControllers)
	t.Run("large objects", w.testLargeObjects)
	t.Run("large EndpointSlices", w.testLargeSlice)
	t.Run("no expression fails", w.testNoExpressionFails)
	t.Run("a rule that is off", w.testRuleOff)
	t.Run("a proxy with a name", func(t *testing.T) { w.testNamedProxy(t, cases) })
	t.Run("defaults of the cluster", func(t *testing.T) { w.testClusterDefaults(t, cases) })
	t.Run("strict", func(t *testing.T) { w.testStrict(t, cases) })
	t.Run("removal", w.testRemoval)
}

// twin is a control plane that has the policies.
type twin struct {
	t       *testing.T
	plane   *controlplane.ControlPlane
	client  *kubernetes.Clientset
	kubectl string
}

func newTwin(t *testing.T) *twin {
	t.Helper()
	programs, err := binaries.Build(t.Context(), os.Stderr, binaries.Etcd, binaries.Kubernetes)
	twinMust(t, err)
	dir, err := os.MkdirTemp("/dev/shm", "vicinity-twin-") //nolint:usetesting // on a tmpfs, where etcd is fast
	twinMust(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	w := &twin{t: t, kubectl: programs.Path(binaries.Kubernetes, "kubectl")}
	w.plane, err = controlplane.Start(t.Context(), controlplane.Config{Dir: dir, Programs: programs, Controllers: true})
	twinMust(t, err)
	t.Cleanup(w.plane.Stop)
	config := w.plane.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // they are read from the answers
	w.client, err = kubernetes.NewForConfig(config)
	twinMust(t, err)
	return w
}

// run runs kubectl as an administrator, and returns what it prints on standard output.
func (w *twin) run(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := w.tryRun(t, arguments...)
	twinMust(t, err)
	return output
}

func (w *twin) tryRun(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), w.kubectl, append([]string{"--kubeconfig", w.plane.AdminKubeconfig()}, arguments...)...)
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(arguments, " "), err, &complaints)
	}
	return string(output), nil
}

// do does what the README says: the commands of its block that has a text, after changes. It returns what they print.
func (w *twin) do(t *testing.T, text string, changes ...string) (string, error) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(twinFolder, "README.md"))
	twinMust(t, err)
	for _, block := range twinBlock.FindAllStringSubmatch(string(readme), -1) {
		if !strings.Contains(block[1], text) {
			continue
		}
		commands := strings.NewReplacer(changes...).Replace(forServer(block[1]))
		shell := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands)
		shell.Dir = "../.."
		shell.Env = append(os.Environ(), "KUBECONFIG="+w.plane.AdminKubeconfig(), "PATH="+filepath.Dir(w.kubectl)+":"+os.Getenv("PATH"))
		output, err := shell.CombinedOutput()
		return string(output), err
	}
	t.Fatalf("the README has no commands with %q", text)
	return "", nil
}

// twinBlock is commands in a README.
var twinBlock = regexp.MustCompile("(?s)\n *```sh\n(.*?)\n *```")

// mustDo does what the README says, and that must succeed.
func (w *twin) mustDo(t *testing.T, text string, changes ...string) string {
	t.Helper()
	output, err := w.do(t, text, changes...)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return output
}

// twinAnswer is what becomes of a request.
type twinAnswer struct {
	err    error
	stored map[string]any // what is stored, or would be
	said   []twinWord
}

// twinWord is a rule in an answer, with the text around it.
type twinWord struct {
	rule   rules.ID
	action rules.Action
	text   string
}

// send creates an object, or replaces one.
func (w *twin) send(t *testing.T, client rest.Interface, verb string, object map[string]any, parameters ...string) twinAnswer {
	t.Helper()
	metadata := object["metadata"].(map[string]any)
	request := client.Verb(verb).Resource(twinResources[object["kind"].(string)])
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
	twinMust(t, err)
	return readTwin(t, request.SetHeader("Content-Type", contentType).Body(body).Do(t.Context()))
}

var twinResources = map[string]string{
	"Service": "services", "Namespace": "namespaces", "Node": "nodes", "EndpointSlice": "endpointslices",
}

// rest is the client for a kind of objects.
func (w *twin) rest(kind any) rest.Interface {
	if kind == "EndpointSlice" {
		return w.client.DiscoveryV1().RESTClient()
	}
	return w.client.CoreV1().RESTClient()
}

func (w *twin) create(t *testing.T, object map[string]any, parameters ...string) twinAnswer {
	t.Helper()
	return w.send(t, w.rest(object["kind"]), http.MethodPost, object, parameters...)
}

func (w *twin) replace(t *testing.T, object map[string]any, parameters ...string) twinAnswer {
	t.Helper()
	return w.send(t, w.rest(object["kind"]), http.MethodPut, object, parameters...)
}

// apply applies on the server's side.
func (w *twin) apply(t *testing.T, object map[string]any, parameters ...string) twinAnswer {
	t.Helper()
	return w.send(t, w.rest(object["kind"]), http.MethodPatch, object, append(parameters, "fieldManager=twin")...)
}

func readTwin(t *testing.T, result rest.Result) twinAnswer {
	t.Helper()
	answer := twinAnswer{err: result.Error()}
	if answer.err == nil {
		text, err := result.Raw()
		twinMust(t, err)
		twinMust(t, json.Unmarshal(text, &answer.stored))
	}
	if status, ok := errors.AsType[*apierrors.StatusError](answer.err); ok {
		answer.said = twinWords(status.ErrStatus.Message, rules.Deny)
		asKubernetes := status.ErrStatus.Code == http.StatusUnprocessableEntity && status.ErrStatus.Reason == metav1.StatusReasonInvalid
		if len(answer.said) > 0 && !asKubernetes {
			t.Errorf("denied with code %d and reason %s", status.ErrStatus.Code, status.ErrStatus.Reason)
		}
	}
	for _, warning := range result.Warnings() {
		answer.said = append(answer.said, twinWords(warning.Text, rules.Warn)...)
	}
	return answer
}

// twinRule is how the text of each rule ends.
var twinRule = regexp.MustCompile(`\[([A-Z]+\d{3})\]`)

func twinWords(text string, action rules.Action) []twinWord {
	var words []twinWord
	for _, found := range twinRule.FindAllStringSubmatch(text, -1) {
		words = append(words, twinWord{rule: rules.ID(found[1]), action: action, text: text})
	}
	return words
}

// says reports whether an answer has a rule.
func (a twinAnswer) says(rule rules.ID) bool {
	for _, word := range a.said {
		if word.rule == rule {
			return true
		}
	}
	return false
}

func (a twinAnswer) String() string {
	var said []string
	for _, word := range a.said {
		said = append(said, fmt.Sprintf("%s %s: %s", word.action, word.rule, word.text))
	}
	return fmt.Sprintf("error: %v\n%s", a.err, strings.Join(said, "\n"))
}

func twinMust(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// twinAwait waits until nothing is wrong any more; so long because the machine may be busy with other things.
func twinAwait(t *testing.T, what string, condition func() error) {
	t.Helper()
	const patience = 2 * time.Minute
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s, not yet: %s: %v", patience, what, err)
		}
	}
}

// twinService is an ordinary Service, after changes.
func twinService(namespace, name string, changes ...func(metadata, spec map[string]any)) map[string]any {
	metadata := map[string]any{"namespace": namespace, "name": name}
	spec := map[string]any{"selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": 80}}}
	for _, change := range changes {
		change(metadata, spec)
	}
	return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
}

// twinAnnotated annotates a Service.
func twinAnnotated(key, value string) func(metadata, spec map[string]any) {
	return func(metadata, _ map[string]any) {
		annotations, _ := metadata["annotations"].(map[string]any)
		if annotations == nil {
			annotations = map[string]any{}
		}
		annotations[key] = value
		metadata["annotations"] = annotations
	}
}

// namespace makes one with a case's labels and annotations.
func (w *twin) namespace(t *testing.T, name string, of *rulecases.Namespace) {
	t.Helper()
	metadata := map[string]any{"name": name}
	if of != nil {
		metadata["labels"], metadata["annotations"] = of.Labels, of.Annotations
	}
	answer := w.create(t, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
	twinMust(t, answer.err)
}
