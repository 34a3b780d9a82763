package topology_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// fewNodes is the number of nodes in these tests.
const fewNodes = 30

// proxyView is a proxy's view of the cluster, with the rights of the proxy's manifests.
type proxyView struct {
	t   testing.TB
	log *logs.Log

	mutex    sync.Mutex
	nodes    map[string]*model.Node
	services map[string]bool
	// removed are nodes that an update removed, in the order of the updates.
	removed []string
	// topologySource is the resource that the proxy watches.
	topologySource string
}

func newProxyView(t testing.TB, config *rest.Config, source apiserver.NodeTopology) *proxyView {
	t.Helper()
	v := &proxyView{t: t, log: logs.New(t, "the proxy"), nodes: map[string]*model.Node{}, services: map[string]bool{}}
	options := apiserver.Options{
		View: convert.View{Node: "node-0000", Proxies: proxyService}, NodeTopology: source, TopologyNamespace: namespace,
		Log: slog.New(slog.NewTextHandler(v.log, nil)), OnTopologySource: v.setSource,
	}
	watcher, err := apiserver.New(config, options)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx, v.apply) }()
	t.Cleanup(func() {
		cancel()
		must.Succeed(t, <-ended)
	})
	return v
}

func (v *proxyView) apply(update convert.Update) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	for name, node := range update.Change.Nodes {
		if node == nil {
			delete(v.nodes, name)
			v.removed = append(v.removed, name)
			continue
		}
		v.nodes[name] = node
	}
	for name, service := range update.Change.Services {
		v.services[name.Name] = service != nil
	}
}

func (v *proxyView) setSource(resource string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.topologySource = resource
}

// source returns the resource that the proxy watches.
func (v *proxyView) source() string {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.topologySource
}

// racks returns the other nodes' racks as text.
func (v *proxyView) racks() string {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		if name != "node-0000" {
			all = append(all, strings.TrimPrefix(name, "node-")+"="+v.nodes[name].Labels[rack])
		}
	}
	return strings.Join(all, " ")
}

// takeRemoved returns the nodes that updates removed since the last call.
func (v *proxyView) takeRemoved() []string {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	removed := v.removed
	v.removed = nil
	return removed
}

// expectedRacks returns the racks of all nodes except node-0000.
func expectedRacks() map[string]string {
	racks := map[string]string{}
	for i := 1; i < fewNodes; i++ {
		racks[fmt.Sprintf("%04d", i)] = fmt.Sprint("rack-", i/10)
	}
	return racks
}

func racksText(racks map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(racks)) {
		all = append(all, name+"="+racks[name])
	}
	return strings.Join(all, " ")
}

func createServiceWithKeys(t testing.TB, name, keys string) {
	t.Helper()
	api.Create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{policy.TopologyKeysAnnotation: keys}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
}

// TestAProxyChangesOverBetweenNodesAndSlices adds a publisher, and later removes it while nodes change. The proxy must
// not lose a node during either change.
func TestAProxyChangesOverBetweenNodesAndSlices(t *testing.T) {
	config := install(t)
	proxy := proxyConfig(t)
	createNodes(t, 0, fewNodes)
	createServiceWithKeys(t, "racked", rack+", *")
	want := expectedRacks()
	v := newProxyView(t, proxy, apiserver.AutoTopology)
	wait.Equal(t, "racks, by Nodes", racksText(want), v.racks)

	one := startPublisher(t, config, "one")
	wait.Until(t, "the proxy watches slices", func() bool { return strings.Contains(v.log.String(), "now=topologyslices") })
	wait.Equal(t, "racks, by slices", racksText(want), v.racks)
	api.Kubectl(t, "label", "node", "node-0007", rack+"=rack-x", "--overwrite")
	want["0007"] = "rack-x"
	wait.Equal(t, "a rack that changed", racksText(want), v.racks)
	if removed := v.takeRemoved(); len(removed) > 0 {
		t.Errorf("lost nodes: %q, want none", removed)
	}

	// Without a publisher the slices stay active until nodes are added.
	one.end()
	expire(t)
	createNodes(t, fewNodes, fewNodes+1)
	want["0030"] = "rack-3"
	wait.Equal(t, "a node that was added while no publisher runs", racksText(want), v.racks)
	v.log.WaitFor(t, "before=topologyslices") // the proxy watches Nodes again
	if removed := v.takeRemoved(); len(removed) > 0 {
		t.Errorf("lost nodes: %q, want none", removed)
	}
}

// TestTheResourceMayBeRemoved deletes the CRD with all slices while proxies watch them.
func TestTheResourceMayBeRemoved(t *testing.T) {
	config := install(t)
	proxy := proxyConfig(t)
	createNodes(t, 0, fewNodes)
	createServiceWithKeys(t, "racked", rack+", *")
	one := startPublisher(t, config, "one")
	v := newProxyView(t, proxy, apiserver.AutoTopology)
	wait.Until(t, "the proxy watches slices", func() bool { return strings.Contains(v.log.String(), "now=topologyslices") })
	wait.Equal(t, "racks, by slices", racksText(expectedRacks()), v.racks)
	api.Kubectl(t, "delete", "customresourcedefinition", "topologyslices.vicinity.dev")
	t.Cleanup(func() { apply(t) }) // runs before the cleanup of install
	expire(t)
	wait.Until(t, "the proxy watches Nodes", func() bool { return strings.Contains(v.log.String(), "before=topologyslices") })
	wait.Equal(t, "racks, by Nodes", racksText(expectedRacks()), v.racks)
	if removed := v.takeRemoved(); len(removed) > 0 {
		t.Errorf("lost nodes: %q, want none", removed)
	}
	one.end()
}

// TestAServiceWaitsForItsLabel checks that a Service is not served before its label is published. Other Services do not
// wait.
func TestAServiceWaitsForItsLabel(t *testing.T) {
	config := install(t)
	proxy := proxyConfig(t)
	want := createNodes(t, 0, fewNodes)
	startPublisher(t, config, "one")
	waitForNodes(t, "all nodes", want)
	createServiceWithKeys(t, "demanding", "topology.kubernetes.io/region, *")
	v := newProxyView(t, proxy, apiserver.SlicesTopology)
	wait.Until(t, "a Service whose labels are published", func() bool { return v.serves("demanding") })
	createServiceWithKeys(t, "racked", rack+", *")
	wait.Until(t, "a Service whose label is published later", func() bool {
		isServed, racks := v.serves("racked"), v.racks()
		if isServed && racks != racksText(expectedRacks()) {
			t.Fatalf("the Service is served before all racks are known; known racks: %s", racks)
		}
		return isServed
	})
}

func (v *proxyView) serves(name string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.services[name]
}

// proxyConfig returns the configuration of a proxy with the rights in its manifests and in the component.
func proxyConfig(t testing.TB) *rest.Config {
	t.Helper()
	_, err := api.Shell(t.Context(), "kubectl apply -f manifests/access.yaml")
	must.Succeed(t, err)
	return withProtobuf(api.Account(t, "kube-system", "vicinity-proxy"))
}

// expire makes the Lease expire immediately, so that the test need not wait.
func expire(t testing.TB) {
	t.Helper()
	api.Kubectl(t, "--namespace", namespace, "patch", "lease", "vicinity-topology", "--type", "merge",
		"--patch", `{"spec": {"leaseDurationSeconds": 1}}`)
}
