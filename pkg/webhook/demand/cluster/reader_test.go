package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// fakeReader has the metadata of Nodes, and the EndpointSlices of proxies.
type fakeReader struct {
	client.Reader
	nodes   []metav1.PartialObjectMetadata
	proxies []discoveryv1.EndpointSlice
}

func (r *fakeReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *metav1.PartialObjectMetadataList:
		list.Items = r.nodes
	case *discoveryv1.EndpointSliceList:
		list.Items = r.proxies
	}
	return nil
}

// TestNodesHaveProxies checks which nodes count as demand: those with a proxy on Linux, and for ten minutes those whose
// proxy has disappeared.
func TestNodesHaveProxies(t *testing.T) {
	reader := &fakeReader{}
	for name, labels := range map[string]map[string]string{
		"with-proxy": {string(policy.Zone): "a", policy.DemandLabel: "3"}, "unready": {string(policy.Zone): "b"}, "without-proxy": {},
		"windows": {policy.OSLabel: "windows"}, "rollout": nil, "two-proxies": {},
	} {
		reader.nodes = append(reader.nodes, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	proxy := func(node, addr string, ready *bool) {
		reader.proxies = append(reader.proxies, discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{
			NodeName: &node, Addresses: []string{addr}, Conditions: discoveryv1.EndpointConditions{Ready: ready},
		}}})
	}
	proxy("rollout", "10.0.0.9", nil)
	proxy("with-proxy", "10.0.0.1", nil)
	proxy("unready", "10.0.0.2", new(false))
	proxy("windows", "10.0.0.3", nil)
	proxy("two-proxies", "10.0.0.5", new(false))
	proxy("two-proxies", "10.0.0.4", new(true))
	proxy("no-node", "10.0.0.6", nil)
	r := &Reader{objects: reader, lastProxy: map[string]time.Time{}}
	nodesAfter := func(after time.Duration) string {
		t.Helper()
		all, err := r.Nodes(t.Context(), time.Unix(1e9, 0).Add(after))
		must.Succeed(t, err)
		if len(all.Labels) != len(reader.nodes) {
			t.Errorf("labels of %d nodes, want %d", len(all.Labels), len(reader.nodes))
		}
		byName := map[string]Node{}
		for _, node := range all.WithProxy {
			byName[node.Name] = node
		}
		return fmt.Sprint(byName, all.Targets)
	}
	others := " two-proxies:{two-proxies  1 true} unready:{unready b 1 false} with-proxy:{with-proxy a 3 true}] " +
		"[%s{two-proxies 10.0.0.4} {unready 10.0.0.2} {with-proxy 10.0.0.1}]"
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{0, "map[rollout:{rollout  1 true}" + fmt.Sprintf(others, "{rollout 10.0.0.9} ")},
		{9 * time.Minute, "map[rollout:{rollout  1 false}" + fmt.Sprintf(others, "")},
		{10 * time.Minute, "map[" + fmt.Sprintf(others, "")[1:]},
	} {
		if got := nodesAfter(c.after); got != c.want {
			t.Errorf("after %s:\n%s\nwant\n%s", c.after, got, c.want)
		}
		reader.proxies = reader.proxies[len(reader.proxies)-6:]
	}
}
