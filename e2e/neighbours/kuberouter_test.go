package neighbours_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// policies is an API server with the nodes and pods, and their NetworkPolicies.
type policies struct {
	api        *site.Site
	kubeconfig string
	// unlisted is a pod that no policy allows.
	unlisted *fabric.Pod
}

const podLabel = "app"

// newPolicies starts an API server on a separate machine. The one policy allows connections to near and far only from
// the pod client, the nodes, whose addresses masqueraded connections have, and the machine outside.
func newPolicies(tb *testbed) *policies {
	t := tb.t
	t.Helper()
	server, err := tb.fabric.AddHost("api", tb.nodes[0].Node)
	must.Succeed(t, err)
	p := &policies{api: site.New(t, site.Config{Namespace: server.Namespace}), unlisted: tb.addServer(tb.nodes[0], "stranger")}
	p.kubeconfig = site.Kubeconfig(t, p.api.AdminConfig())
	for _, node := range tb.nodes {
		tb.createNode(p.api, node)
	}
	p.api.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}})
	for _, pod := range []*fabric.Pod{tb.near, tb.far, tb.client, p.unlisted} {
		p.createPod(tb, pod)
	}
	allowed := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{podLabel: "client"}}}}
	for _, machine := range []*fabric.Namespace{tb.nodes[0].Namespace, tb.nodes[1].Namespace, tb.outside} {
		allowed = append(allowed,
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: machine.IPv4.String() + "/32"}},
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: machine.IPv6.String() + "/128"}})
	}
	p.allow(tb, allowed, both...)
	return p
}

// createNode creates a Node at an API server.
func (tb *testbed) createNode(api *site.Site, node *machine) {
	tb.t.Helper()
	ipv4, ipv6 := node.PodCIDRs()
	object := &corev1.Node{
		// flannel requires annotations; kubelet adds this one.
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Annotations: map[string]string{
			"volumes.kubernetes.io/controller-managed-attach-detach": "true",
		}},
		Spec: corev1.NodeSpec{PodCIDR: ipv4.String(), PodCIDRs: []string{ipv4.String(), ipv6.String()}},
	}
	api.Create(tb.t, object)
	object.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: node.IPv4.String()}, {Type: corev1.NodeInternalIP, Address: node.IPv6.String()},
	}
	_, err := api.Admin.CoreV1().Nodes().UpdateStatus(tb.t.Context(), object, metav1.UpdateOptions{})
	must.Succeed(tb.t, err)
}

func (p *policies) createPod(tb *testbed, pod *fabric.Pod) {
	tb.t.Helper()
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: pod.Name, Labels: map[string]string{podLabel: pod.Name},
		},
		Spec: corev1.PodSpec{NodeName: pod.Node.Name, Containers: []corev1.Container{{Name: "server", Image: "none"}}},
	}
	p.api.Create(tb.t, object)
	object.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: pod.Node.IPv4.String(),
		HostIPs: []corev1.HostIP{{IP: pod.Node.IPv4.String()}, {IP: pod.Node.IPv6.String()}},
		PodIP:   pod.IPv4.String(), PodIPs: []corev1.PodIP{{IP: pod.IPv4.String()}, {IP: pod.IPv6.String()}},
	}
	_, err := p.api.Admin.CoreV1().Pods(object.Namespace).UpdateStatus(tb.t.Context(), object, metav1.UpdateOptions{})
	must.Succeed(tb.t, err)
}

// allow creates a policy that allows only the given peers to dial the named pods.
func (p *policies) allow(tb *testbed, from []networkingv1.NetworkPolicyPeer, pods ...string) *networkingv1.NetworkPolicy {
	tb.t.Helper()
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "allow-"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: podLabel, Operator: metav1.LabelSelectorOpIn, Values: pods}},
			},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: from}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	p.api.Create(tb.t, policy)
	return policy
}

// startKubeRouter starts kube-router, and waits until the rules of the node's pods exist.
func (m *machine) startKubeRouter() {
	m.testbed.t.Helper()
	m.runKubeRouter()
	m.service.WaitFor(m.testbed.t, "rules of pods", func() error {
		if !strings.Contains(m.inDebian().run("iptables-save"), "KUBE-POD-FW-") {
			return errNoRules
		}
		return nil
	})
}

// runKubeRouter starts kube-router.
func (m *machine) runKubeRouter(flags ...string) {
	tb := m.testbed
	tb.t.Helper()
	if tb.policies == nil {
		tb.policies = newPolicies(tb)
	}
	m.service = site.Start(tb.t, m.Namespace, m.inDebian().command(programs.Path(binaries.KubeRouter, "kube-router"), append([]string{
		"--run-firewall", "--run-router=false", "--run-service-proxy=false", "--kubeconfig=" + tb.policies.kubeconfig,
		"--hostname-override=" + m.Name, "--service-cluster-ip-range=" + fabric.ClusterIPv4.String(),
	}, flags...)...))
}

var errNoRules = errors.New("iptables-save prints no rules of pods")

// TestKubeRouter uses only kube-router's policies: denied connections fail through every frontend. It covers IPv4; see
// TestKubeRouterOverIPv6.
func TestKubeRouter(t *testing.T) {
	t.Parallel()
	testNeighbour(t, neighbour{
		start:   (*machine).startKubeRouter,
		update:  func(m *machine) { m.testbed.policies.allow(m.testbed, nil, "stranger") },
		restart: func(m *machine) { m.stop(); m.startKubeRouter() },
		check: func(tb *testbed) {
			unlisted, first := tb.policies.unlisted.Namespace, tb.nodes[0]
			tb.expectBlocked("no policy allows it", unlisted, addrPorts(podPort, tb.near.IPv4, tb.far.IPv4)...)
			tb.expectBlocked("no policy allows it", unlisted, (spec{app: nearApp, internal: true}).ipv4Frontends(first)...)
			tb.expectBlocked("no policy allows it", unlisted, (spec{app: nearApp}).ipv4Frontends(first)...)
			tb.expectBlocked("no policy allows it", unlisted, (spec{app: farApp, internal: true}).ipv4Frontends(first)...)
			// The node of far enforces the policy, and sees the address of the dialled node, which is allowed.
			for _, to := range (spec{app: farApp}).ipv4Frontends(first) {
				tb.expect("masqueraded on another node", check{unlisted, to, cell{onlyFar, node}})
			}
		},
	})
}

// TestPolicyChangesApplyThroughAClusterIP checks changes of a policy through a Service's ClusterIP. Open connections
// continue.
func TestPolicyChangesApplyThroughAClusterIP(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	first := tb.nodes[0]
	first.startProxy()
	first.startKubeRouter()
	unlisted, to := tb.policies.unlisted, (spec{app: nearApp, internal: true}).ipv4Frontends(first)
	tb.expectBlocked("no policy allows it", unlisted.Namespace, to...)
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{podLabel: unlisted.Name}}}
	policy := tb.policies.allow(tb, []networkingv1.NetworkPolicyPeer{peer}, tb.near.Name)
	wait.Success(t, "the policy allows it", func() error {
		_, err := unlisted.Request("tcp", to[0], briefTimeout)
		return err
	})
	conn, err := unlisted.Open("tcp", to[0])
	must.Succeed(t, err)
	defer conn.Close()
	policyClient := tb.policies.api.Admin.NetworkingV1().NetworkPolicies(policy.Namespace)
	must.Succeed(t, policyClient.Delete(t.Context(), policy.Name, metav1.DeleteOptions{}))
	wait.Until(t, "no policy allows it any more", func() bool {
		_, err := unlisted.Request("tcp", to[0], briefTimeout)
		return err != nil
	})
	if _, err := conn.Request(requestTimeout); err != nil {
		t.Errorf("request on an open connection after the policy was deleted: %v", err)
	}
}

// TestKubeRouterOverIPv6 shows that version 2.1.0 enforces no IPv6 policy, with a proxy or without. By default it adds
// no IPv6 rules. If enabled, its rules are invalid for ip6tables: they name a set KUBE-SRC-…, and the set is named
// inet6:KUBE-SRC-….
func TestKubeRouterOverIPv6(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"as shipped": nil,
		"enabled":    {"--enable-ipv6", "--service-cluster-ip-range=" + fabric.ClusterIPv6.String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tb := newTestbed(t)
			first := tb.nodes[0]
			if flags == nil {
				first.startKubeRouter()
			} else {
				first.runKubeRouter(flags...)
				first.service.WaitFor(t, "rules that are rejected", first.checkRejectedByIP6Tables)
			}
			unlisted := tb.policies.unlisted.Namespace
			fromUnlisted := func(to netip.AddrPort) check { return check{unlisted, to, cell{onlyNear, client}} }
			tb.expect("a pod that no policy allows", fromUnlisted(netip.AddrPortFrom(tb.near.IPv6, podPort)))
			first.startProxy()
			tb.expect("a pod that no policy allows", fromUnlisted(netip.AddrPortFrom(nearApp.clusterIPs()[1], servicePort)))
		})
	}
}

func (m *machine) checkRejectedByIP6Tables() error {
	if !m.service.Log.Has("failed to call ip6tables-restore") {
		return errors.New("ip6tables-restore has not rejected kube-router's rules")
	}
	return nil
}
