package nodecondition_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestLoadBalancersLearnThatANodeIsDrainedOrShutDown covers each condition of Kubernetes 1.37, and the message with
// which kubelet begins a graceful shutdown. The proxy itself stays healthy, and its probes pass.
func TestLoadBalancersLearnThatANodeIsDrainedOrShutDown(t *testing.T) {
	n := newNode(t)
	n.startProxy(n.token)
	n.proxy.Log.WaitFor(t, "the first sync is in the kernel")
	const isReady = `{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}`
	n.setCondition(isReady)
	n.waitForHealthz("")
	for _, one := range []struct{ begins, ends, reason string }{
		{`{"type": "DrainInProgress", "status": "True"}`, `{"type": "DrainInProgress", "status": "False"}`,
			"it has the condition DrainInProgress"},
		{`{"type": "MaintenanceInProgress", "status": "True"}`, `{"type": "MaintenanceInProgress", "$patch": "delete"}`,
			"it has the condition MaintenanceInProgress"},
		{`{"type": "GracefulNodeShutdownInProgress", "status": "True"}`,
			`{"type": "GracefulNodeShutdownInProgress", "status": "Unknown"}`, "it has the condition GracefulNodeShutdownInProgress"},
		{`{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "node is shutting down"}`,
			isReady, "kubelet reports that the node is shutting down"},
	} {
		n.setCondition(one.begins)
		n.waitForHealthz(one.reason)
		n.expectOK("/livez")
		n.expectOK("/readyz")
		n.setCondition(one.ends)
		n.waitForHealthz("")
	}
}

// setCondition writes a condition into the Node's status.
func (n *node) setCondition(condition string) {
	n.t.Helper()
	patch := fmt.Sprintf(`{"status": {"conditions": [%s]}}`, condition)
	_, err := n.api.Admin.CoreV1().Nodes().Patch(
		n.t.Context(), nodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	must.Succeed(n.t, err)
}

// waitForHealthz waits until /healthz tells load balancers to avoid the node for this reason. An empty reason means
// that the node is eligible.
func (n *node) waitForHealthz(reason string) {
	n.t.Helper()
	code := http.StatusOK
	if reason != "" {
		code = http.StatusServiceUnavailable
	}
	wait.Until(n.t, fmt.Sprintf("/healthz returns %d: %q", code, reason), func() bool {
		got, body, err := site.Get(n.Namespace, "127.0.0.1:10256", "/healthz")
		must.Succeed(n.t, err)
		var page struct {
			NodeEligible bool
			NotEligible  string
		}
		must.Succeed(n.t, json.NewDecoder(strings.NewReader(body)).Decode(&page))
		return got == code && page.NodeEligible == (reason == "") && page.NotEligible == reason
	})
}

func (n *node) expectOK(path string) {
	n.t.Helper()
	_, err := site.Page(n.Namespace, "127.0.0.1:10256", path)
	must.Succeed(n.t, err)
}
