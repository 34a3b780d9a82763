package endure_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// otherProxyMessage is the log message about another service proxy.
const otherProxyMessage = "another service proxy is on this node"

// TestKubeProxyNextToVicinityIsReported starts Kubernetes' own kube-proxy on a node with Vicinity, as an upgrade by
// kubeadm does. Its rules are added last, so they take precedence. They remain when it ends, until they are cleaned up
// as described in the warning.
func TestKubeProxyNextToVicinityIsReported(t *testing.T) {
	t.Parallel() // with the storms
	s := &canary{apiSetup: newAPISetup(t)}
	// kube-proxy uses the default ports.
	const metrics = "127.0.0.1:10349"
	daemon := s.startProxy("--healthz-bind-address", "0.0.0.0:10356", "--metrics-bind-address", metrics)
	daemon.waitForSync()
	s.createPodOfProxy()
	if others, err := s.others(metrics); err != nil || len(others) > 0 {
		t.Fatalf("status without another proxy: error %v, other proxies %+v", err, others)
	}
	if inSync, problem := s.nodeStatus(); !inSync {
		t.Errorf("alone on the node: status --all-nodes reports %q", problem)
	}
	kubeProxy := s.startKubeProxy()
	wait.Until(t, "the proxy warns of kube-proxy", func() bool { return daemon.Log.Has(otherProxyMessage) })
	for _, want := range []string{"proxy=kube-proxy-nftables", "first=true", "kube-proxy --cleanup"} {
		if lines := daemon.Log.Lines(otherProxyMessage); len(lines) != 1 || !strings.Contains(lines[0], want) {
			t.Errorf("the log has %q, want one line with %q", lines, want)
		}
	}
	wait.Until(t, "an Event on the Node", func() bool {
		events, err := s.client.EventsV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for i := range events.Items {
			event := &events.Items[i]
			if event.Reason == "OtherServiceProxy" && event.Regarding.Kind == "Node" && event.Regarding.Name == s.node.Name {
				return true
			}
		}
		return false
	})
	value, err := daemon.Metric(metrics, "vicinity_other_service_proxies", `proxy="kube-proxy-nftables"`)
	if err != nil || value != 1 {
		t.Errorf("the metric is %v (%v), want 1", value, err)
	}
	if inSync, problem := s.nodeStatus(); inSync || !strings.Contains(problem, "handles new connections before") {
		t.Errorf("status --all-nodes reports %q, in sync: %v", problem, inSync)
	}
	_ = kubeProxy.Stop(10 * time.Second) // the signal terminates it, which counts as an error
	if others, err := s.others(metrics); err == nil || len(others) != 1 || !others[0].First {
		t.Errorf("with leftover rules of kube-proxy, status reports %+v (%v), want one proxy and an error", others, err)
	}
	_, err = s.node.Run(exec.Command(s.kubeProxy(), "--cleanup"))
	must.Succeed(t, err)
	if others, err := s.others(metrics); err != nil || len(others) > 0 {
		t.Errorf("status after the cleanup: error %v, other proxies %+v", err, others)
	}
}

// others returns the other service proxies that `proxy status` finds. The error is its exit status.
func (s *canary) others(metrics string) ([]otherProxy, error) {
	s.t.Helper()
	output, err := s.run(s.program, "status", "--metrics-bind-address", metrics, "-o", "json")
	var status struct {
		Kernel struct{ OtherProxies []otherProxy }
	}
	if decodeErr := json.Unmarshal([]byte(output), &status); decodeErr != nil {
		s.t.Fatalf("%v: %v: %s", err, decodeErr, output)
	}
	return status.Kernel.OtherProxies, err
}

// otherProxy has the fields of another proxy in the output that the test reads.
type otherProxy struct {
	Proxy string
	First bool
}

const appLabel = "app.kubernetes.io/name"

// createPodOfProxy creates the Pod in which the proxy runs. The API server reaches it at the node's address.
func (s *canary) createPodOfProxy() {
	s.t.Helper()
	const namespace = metav1.NamespaceSystem
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "vicinity-proxy-1", Labels: map[string]string{appLabel: "vicinity-proxy"}},
		Spec:       corev1.PodSpec{NodeName: s.node.Name, Containers: []corev1.Container{{Name: "proxy", Image: "none"}}},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	s.retry("create the Pod of the proxy", func(ctx context.Context) error {
		_, err := s.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		created, err := s.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		addr := s.node.IPv4.String()
		created.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}}
		_, err = s.client.CoreV1().Pods(namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{})
		return err
	})
}

// nodeStatus returns the node's result in `proxy status --all-nodes`. No proxies run on the other nodes.
func (s *canary) nodeStatus() (inSync bool, problem string) {
	s.t.Helper()
	output, err := s.outside.Run(exec.Command(s.program, "status", "--all-nodes", "-o", "json",
		"--kubeconfig", s.api.AdminKubeconfig(), "--proxy-healthz-port", "10356"))
	var nodes []struct {
		Node, Problem string
		InSync        bool
	}
	if decodeErr := json.Unmarshal([]byte(output), &nodes); decodeErr != nil {
		s.t.Fatalf("%v: %v: %s", err, decodeErr, output)
	}
	for _, node := range nodes {
		if node.Node == s.node.Name {
			return node.InSync, node.Problem
		}
	}
	s.t.Fatalf("node %s is missing: %s", s.node.Name, output)
	return false, ""
}
