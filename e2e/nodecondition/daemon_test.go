package nodecondition_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const nodeName = "node-1"

// pending is the taint of a Node on which Services do not work yet.
var pending = corev1.Taint{Key: "readiness.k8s.io/vicinity-services", Effect: corev1.TaintEffectNoSchedule}

// auditPolicy makes the API server log the proxy's requests for Nodes.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:serviceaccount:kube-system:vicinity-proxy"], resources: [{resources: [nodes, nodes/status]}]}
- {level: None}
`

// node is a node for a proxy, and a control plane with a scheduler on another machine.
type node struct {
	*fabric.Node
	t     *testing.T
	api   *site.Site
	token *rest.Config
	proxy *site.Process
	// program is the proxy that startProxy starts. Until the upgrade it is the file in UPGRADE_FROM, if that is set.
	program string

	created map[string]string // the resource versions of pods before they were bound

	mutex   sync.Mutex
	history []change // of the condition
}

// change is a change of the Node's condition, with the Node's resource version.
type change struct {
	status  corev1.ConditionStatus
	version string
}

// TestAPodStartsAfterTheServicesWork covers the life of a node: new, with restarts of the proxy, and after a boot. A
// stand-in for the Node Readiness Controller taints the Node while the condition is not true, and the real scheduler
// binds pods.
func TestAPodStartsAfterTheServicesWork(t *testing.T) {
	n := newNode(t)
	n.step("a new node", func() {
		n.withholdSlices(true)
		n.startProxy(n.token)
		n.waitForHistory("False")
		n.createPod("first")
		n.withholdSlices(false)
		n.waitForHistory("False", "True")
		n.expectBoundAfter("first", 1)
	})
	n.step("restarts after SIGTERM and SIGKILL", func() {
		for _, end := range []func() error{func() error { return n.proxy.Stop(wait.Timeout) }, func() error { return n.proxy.Kill() }} {
			must.Succeed(n.t, end())
			reads := n.requests("list")
			n.startProxy(n.token)
			n.proxy.Log.WaitFor(n.t, "the first sync is in the kernel")
			wait.Until(n.t, "the proxy has listed the Node", func() bool { return n.requests("list") > reads })
		}
		n.createPod("second")
		n.waitForBound("second")
		n.waitForHistory("False", "True")
	})
	n.step("an upgrade from a proxy with another message and other rules", func() {
		must.Succeed(n.t, n.proxy.Stop(wait.Timeout))
		n.changeMessage()
		n.addRules("add table ip vicinity\nadd counter ip vicinity other\nadd chain ip vicinity of-another-version\n" +
			"add rule ip vicinity of-another-version counter name other\n")
		n.program = site.Program(n.t, "proxy")
		n.waitForPatches(2)
		n.startProxy(n.token)
		n.proxy.Log.WaitFor(n.t, "the first sync is in the kernel")
		n.createPod("upgraded")
		n.waitForBound("upgraded")
		n.waitForHistory("False", "True")
		n.waitForPatches(2) // none from the new proxy: only its message differs
	})
	n.step("a loss of power", func() {
		must.Succeed(n.t, n.PowerOff(n.proxy.Kill))
		must.Succeed(n.t, n.PowerOn())
		n.withholdSlices(true)
		n.startProxy(n.token)
		n.waitForHistory("False", "True", "False")
		n.waitForTaint(true)
		n.createPod("third")
		n.withholdSlices(false)
		n.waitForHistory("False", "True", "False", "True")
		n.expectBoundAfter("third", 3)
	})
	n.waitForPatches(4)
	n.step("a Node that is registered again", func() {
		must.Succeed(n.t, n.api.Admin.CoreV1().Nodes().Delete(n.t.Context(), nodeName, metav1.DeleteOptions{}))
		n.register()
		n.waitForHistory("False", "True", "False", "True", "True")
		n.waitForStaleMetric(0)
	})
	n.step("without the permission", func() {
		must.Succeed(n.t, n.PowerOff(n.proxy.Kill))
		must.Succeed(n.t, n.PowerOn())
		must.Succeed(n.t, n.api.Admin.CoreV1().Nodes().Delete(n.t.Context(), nodeName, metav1.DeleteOptions{}))
		n.register()
		n.startProxy(n.api.Account(n.t, namespace, account)) // a token without a pod
		n.proxy.Log.WaitFor(n.t, "the first sync is in the kernel")
		n.proxy.Log.WaitFor(n.t, "apply the component manifests/node-condition, which grants the permission")
		patches := n.requests("patch")
		wait.Until(n.t, "the proxy retries", func() bool { return n.requests("patch") > patches+1 })
		if got := n.proxy.Log.Count("failed to write the Node's condition"); got != 1 {
			n.t.Errorf("the failed write was logged %d times, want once", got)
		}
		n.waitForStaleMetric(1)
		n.waitForHistory("False", "True", "False", "True", "True")
		must.Succeed(n.t, n.api.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(
			n.t.Context(), "node-condition.proxy.vicinity.dev", metav1.DeleteOptions{})) // as if the right had been granted
		n.waitForHistory("False", "True", "False", "True", "True", "True")
		n.waitForStaleMetric(0)
	})
}

func newNode(t *testing.T) *node {
	t.Helper()
	network := fabrictest.New(t)
	machine, err := network.AddNode(nodeName)
	must.Succeed(t, err)
	outside, err := network.AddHost("control-plane", machine)
	must.Succeed(t, err)
	api := site.New(t, site.Config{Namespace: outside.Namespace, Controllers: true, Audit: auditPolicy})
	n := &node{Node: machine, t: t, api: api, created: map[string]string{}}
	if n.program = os.Getenv("UPGRADE_FROM"); n.program == "" {
		n.program = site.Program(t, "proxy")
	}
	apply(t, n.api)
	n.register()
	n.token = configOnNode(t, n.api, nodeName)
	n.controlTaint()
	return n
}

// step runs a part of the scenario as a subtest, and ends the whole test if it fails.
func (n *node) step(name string, step func()) {
	whole := n.t
	defer func() { n.t = whole }()
	if !whole.Run(name, func(t *testing.T) {
		n.t = t
		step()
	}) {
		whole.FailNow()
	}
}

// waitForPatches waits until the audit log has one patch for each change of the condition. The log is written after
// watches have delivered the change.
func (n *node) waitForPatches(want int) {
	n.t.Helper()
	wait.Equal(n.t, "number of patches, one per change", want, func() int { return n.requests("patch") })
}

// register creates the Node like a kubelet that is configured with the taint.
func (n *node) register() {
	n.t.Helper()
	object := objects.Node(nodeName, nil, n.IPv4, n.IPv6)
	object.Spec.Taints = []corev1.Taint{pending}
	object.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")}
	object.Status.Capacity = object.Status.Allocatable
	n.api.Create(n.t, object)
}

// startProxy starts the proxy on the node, with a token.
func (n *node) startProxy(token *rest.Config) {
	n.t.Helper()
	n.proxy = site.Start(n.t, n.Namespace, exec.Command(n.program, "run", "--node-condition",
		"--kubeconfig", site.Kubeconfig(n.t, token), "--node", nodeName, "--own-tables", "never",
		"--cluster-cidr", fabric.PodsIPv4.String()+","+fabric.PodsIPv6.String()))
}

// changeMessage changes the condition's reason and message, as another version of the proxy would.
func (n *node) changeMessage() {
	n.t.Helper()
	patch := `{"status": {"conditions": [{"type": "vicinity.dev/ServicesReady", "reason": "Other", "message": "In other words"}]}}`
	_, err := n.api.Admin.CoreV1().Nodes().Patch(
		n.t.Context(), nodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	must.Succeed(n.t, err)
}

// addRules loads a ruleset on the node with nft.
func (n *node) addRules(text string) {
	n.t.Helper()
	must.Succeed(n.t, n.Do(func() error {
		command := exec.Command("nft", "-f", "-")
		command.Stdin = strings.NewReader(text)
		return command.Run()
	}))
}

// waitForStaleMetric waits until the metric of a stale condition has a value.
func (n *node) waitForStaleMetric(want float64) {
	n.t.Helper()
	wait.Equal(n.t, "vicinity_node_condition_stale", want, func() float64 {
		value, err := n.proxy.Metric("127.0.0.1:10249", "vicinity_node_condition_stale")
		must.Succeed(n.t, err)
		return value
	})
}

// withholdSlices revokes the proxies' right to read EndpointSlices, or grants it again. Without EndpointSlices there is
// no first sync.
func (n *node) withholdSlices(withheld bool) {
	n.t.Helper()
	name := "discovery.k8s.io"
	if withheld {
		name = "nothing.example.com"
	}
	patch := `[{"op": "replace", "path": "/rules/1/apiGroups", "value": ["` + name + `"]}]`
	_, err := n.api.Admin.RbacV1().ClusterRoles().Patch(n.t.Context(), account, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	must.Succeed(n.t, err)
}

// controlTaint starts a goroutine that records the Node's condition, and taints the Node unless the condition is true.
func (n *node) controlTaint() {
	n.t.Helper()
	nodes := n.api.Admin.CoreV1().Nodes()
	list, err := nodes.List(n.t.Context(), metav1.ListOptions{})
	must.Succeed(n.t, err)
	changes, err := nodes.Watch(n.t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must.Succeed(n.t, err)
	ctx, whole := n.t.Context(), n.t
	var running sync.WaitGroup
	n.t.Cleanup(running.Wait)
	n.t.Cleanup(changes.Stop)
	running.Go(func() {
		var last corev1.ConditionStatus
		for event := range changes.ResultChan() {
			object, isNode := event.Object.(*corev1.Node)
			switch {
			case !isNode:
				continue
			case event.Type == watch.Deleted:
				last = ""
				continue
			}
			if now := conditionStatus(object); now != last {
				last = now
				n.record(change{now, object.ResourceVersion})
			}
			n.taintUnlessReady(ctx, whole, object)
		}
	})
}

// taintUnlessReady does what the Node Readiness Controller does if its rule is enforced continuously.
func (n *node) taintUnlessReady(ctx context.Context, whole *testing.T, object *corev1.Node) {
	ready := conditionStatus(object) == corev1.ConditionTrue
	if ready != isTainted(object) {
		return
	}
	updated := object.DeepCopy()
	if ready {
		updated.Spec.Taints = slices.DeleteFunc(updated.Spec.Taints, isPending)
	} else {
		updated.Spec.Taints = append(updated.Spec.Taints, pending)
	}
	_, err := n.api.Admin.CoreV1().Nodes().Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil { // after a conflict another event follows
		whole.Errorf("change the taint: %v", err)
	}
}

func isTainted(object *corev1.Node) bool { return slices.ContainsFunc(object.Spec.Taints, isPending) }

func isPending(taint corev1.Taint) bool { return taint.Key == pending.Key }

func (n *node) record(one change) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.history = append(n.history, one)
}

// waitForHistory waits until the condition has had exactly these values, in this order.
func (n *node) waitForHistory(want ...string) {
	n.t.Helper()
	wait.Equal(n.t, "history of the Node's condition", want, func() []string {
		n.mutex.Lock()
		defer n.mutex.Unlock()
		var all []string
		for _, one := range n.history {
			all = append(all, string(one.status))
		}
		return all
	})
}

func (n *node) waitForTaint(want bool) {
	n.t.Helper()
	wait.Equal(n.t, "the Node is tainted", want, func() bool { return isTainted(nodeOf(n.t, n.api, nodeName)) })
}

// createPod creates a pod that may run on any node where Services work. No kubelet runs, which makes the Node NotReady.
func (n *node) createPod(name string) {
	n.t.Helper()
	tolerated := []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       corev1.PodSpec{Tolerations: tolerated, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	wait.Success(n.t, "creating a pod", func() error { // the controllers create its ServiceAccount
		_, err := n.api.Admin.CoreV1().Pods(pod.Namespace).Create(n.t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	n.created[name] = n.getPod(name).ResourceVersion
	wait.Until(n.t, "the scheduler has processed pod "+name, func() bool {
		return slices.ContainsFunc(n.getPod(name).Status.Conditions, func(one corev1.PodCondition) bool {
			return one.Type == corev1.PodScheduled
		})
	})
}

func (n *node) getPod(pod string) *corev1.Pod {
	n.t.Helper()
	got, err := n.api.Admin.CoreV1().Pods(metav1.NamespaceDefault).Get(n.t.Context(), pod, metav1.GetOptions{})
	must.Succeed(n.t, err)
	return got
}

func (n *node) waitForBound(pod string) {
	n.t.Helper()
	wait.Equal(n.t, "the node of pod "+pod, nodeName, func() string { return n.getPod(pod).Spec.NodeName })
}

// expectBoundAfter waits until a pod is bound, and checks that this happened after the change with this index in the
// condition's history.
func (n *node) expectBoundAfter(pod string, index int) {
	n.t.Helper()
	n.waitForBound(pod)
	changes, err := n.api.Admin.CoreV1().Pods(metav1.NamespaceDefault).Watch(n.t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod, ResourceVersion: n.created[pod],
	})
	must.Succeed(n.t, err)
	defer changes.Stop()
	for event := range changes.ResultChan() {
		object, isPod := event.Object.(*corev1.Pod)
		if !isPod || object.Spec.NodeName == "" {
			continue
		}
		n.mutex.Lock()
		defer n.mutex.Unlock()
		if recorded := n.history[index]; parseVersion(n.t, object.ResourceVersion) < parseVersion(n.t, recorded.version) {
			n.t.Errorf("pod %s was bound in version %s, before the condition became %s in version %s", pod, object.ResourceVersion,
				recorded.status, recorded.version)
		}
		return
	}
	n.t.Errorf("the watch reports no binding of pod %s", pod)
}

func parseVersion(t *testing.T, version string) uint64 {
	t.Helper()
	number, err := strconv.ParseUint(version, 10, 64)
	must.Succeed(t, err)
	return number
}

// requests counts the proxies' audited requests for Nodes with a verb.
func (n *node) requests(verb string) (count int) {
	n.t.Helper()
	all, err := n.api.Audited()
	must.Succeed(n.t, err)
	for _, request := range all {
		if request.Verb == verb {
			count++
		}
	}
	return count
}
