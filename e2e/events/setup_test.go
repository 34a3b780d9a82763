package events_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

const (
	nodeName  = "node-1"
	namespace = "shop"
	// The proxy's ServiceAccount in manifests/access.yaml.
	accountNamespace, accountName = "kube-system", "vicinity-proxy"
)

// node is a node for a proxy, and a control plane on another machine that audits the proxy's requests.
type node struct {
	*fabric.Node
	t     *testing.T // a subtest replaces it
	api   *site.Site
	proxy *site.Process
}

func newNode(t *testing.T) *node {
	t.Helper()
	network := fabrictest.New(t)
	machine, err := network.AddNode(nodeName)
	must.Succeed(t, err)
	outside, err := network.AddHost("control-plane", machine)
	must.Succeed(t, err)
	n := &node{Node: machine, t: t, api: site.New(t, site.Config{Namespace: outside.Namespace, Audit: auditPolicy})}
	n.api.Kubectl(t, "apply", "-f", filepath.Join("..", "..", "manifests", "access.yaml"))
	n.api.Create(t, objects.Node(nodeName, nil, n.IPv4, n.IPv6), objects.Namespace(namespace, nil, nil))
	return n
}

// service creates a Service with one port, modified by change.
func (n *node) service(name string, change func(*corev1.Service)) corev1.ObjectReference {
	n.t.Helper()
	service := objects.Service(namespace, name, change)
	n.api.Create(n.t, service)
	return corev1.ObjectReference{Kind: "Service", Namespace: namespace, Name: name, UID: service.UID}
}

// slice creates an EndpointSlice with some ports, like one written by hand: the API server does not validate its port
// numbers.
func (n *node) slice(name string, ports ...int32) corev1.ObjectReference {
	n.t.Helper()
	slice := objects.Slice(namespace, name, "keyed", "10.244.0.10")
	slice.Endpoints[0].NodeName = new(nodeName)
	slice.Ports = nil
	for i, port := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(strings.Repeat("p", i+1)), Port: new(port)})
	}
	n.api.Create(n.t, slice)
	return corev1.ObjectReference{Kind: "EndpointSlice", Namespace: namespace, Name: name, UID: slice.UID}
}

// startProxy starts the proxy on the node, with the ServiceAccount that it has in a cluster.
func (n *node) startProxy() {
	n.t.Helper()
	kubeconfig := site.Kubeconfig(n.t, n.api.Account(n.t, accountNamespace, accountName))
	n.proxy = site.Start(n.t, n.Namespace, exec.Command(site.Program(n.t, "proxy"), "run", "--kubeconfig", kubeconfig,
		"--node", nodeName, "--own-tables", "never", "--cluster-cidr", fabric.PodsIPv4.String()+","+fabric.PodsIPv6.String()))
}
