package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// fakeCluster has a number of Nodes, some of them with proxies. It counts requests. e2e/topology uses a real API
// server.
type fakeCluster struct {
	metadata.Getter
	nodes, proxies int
	isAway         bool
	requests       int
}

var errAway = errors.New("the API server is away")

func (c *fakeCluster) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	c.requests++
	if c.isAway {
		return nil, errAway
	}
	list := &metav1.PartialObjectMetadataList{Items: make([]metav1.PartialObjectMetadata, 1)}
	list.RemainingItemCount = new(int64(c.nodes - 1))
	return list, nil
}

func (c *fakeCluster) slices(context.Context, metav1.ListOptions) (runtime.Object, error) {
	list := &discoveryv1.EndpointSliceList{Items: make([]discoveryv1.EndpointSlice, 2)}
	for i := range c.proxies {
		slice := &list.Items[i%2]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{NodeName: new(fmt.Sprint("node-", i))})
	}
	return list, nil
}

func (c *fakeCluster) watcher() *Watcher {
	slices := &cache.ListWatch{ListWithContextFunc: c.slices}
	lists := listWatches{nodes: c, byKind: map[*convert.Kind]*cache.ListWatch{convert.ProxySlices: slices}}
	proxies := model.ObjectName{Namespace: "kube-system", Name: "proxies"}
	return newWatcher(lists, Options{View: convert.View{Proxies: proxies}, Log: slog.New(slog.DiscardHandler)})
}

func TestProxiesCoverNodes(t *testing.T) {
	for _, test := range []struct {
		nodes, proxies int
		isAway, want   bool
	}{
		{nodes: 1, proxies: 1, want: true},
		{nodes: 1},
		{nodes: 9, proxies: 8},
		{nodes: 10, proxies: 9, want: true},
		{nodes: 5000, proxies: 4500, want: true},
		{nodes: 5000, proxies: 4499},
		{nodes: 10, proxies: 12, want: true}, // some Nodes are deleted
		{nodes: 10, proxies: 10, isAway: true},
	} {
		cluster := &fakeCluster{nodes: test.nodes, proxies: test.proxies, isAway: test.isAway}
		if got := cluster.watcher().proxiesCoverNodes(t.Context(), false); got != test.want {
			t.Errorf("%+v: the proxies cover the nodes: %v", test, got)
		}
	}
}

// A proxy must check every ten minutes whether proxies cover the nodes, regardless of the edits of users.
func TestProxyCheckInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &fakeCluster{nodes: 10, proxies: 10}
		w := cluster.watcher()
		check := func(what string, after time.Duration, want bool, requests int) {
			t.Helper()
			time.Sleep(after)
			if got := w.proxiesCoverNodes(t.Context(), false); got != want || cluster.requests != requests {
				t.Errorf("%s: %v after %d requests, want %v after %d", what, got, cluster.requests, want, requests)
			}
		}
		use := func(keys ...policy.Key) {
			w.state.put(convert.Services, &object{name: nameOf("web"), value: &model.Service{
				Name: nameOf("web"), Topology: policy.Topology{Keys: append(keys, policy.Zone, policy.AnyNode), MaxLoad: 120},
			}})
		}
		use()
		check("first check", 0, true, 1)
		check("after nine minutes", 9*time.Minute, true, 1)
		cluster.proxies = 1
		check("proxies are gone", 2*time.Minute, false, 2)
		cluster.proxies = 10
		check("they are back", 11*time.Minute, true, 3)
		cluster.isAway = true
		check("the API server is unavailable", 11*time.Minute, true, 4)
		cluster.isAway = false
		check("the API server is back", time.Second, true, 5)
		use(rack)
		check("a Service needs racks", 0, false, 5)
		use()
		check("racks are no longer needed", 11*time.Hour, false, 5)
		use(rack)
		check("racks are needed again", 0, false, 5)
		use()
		check("racks are not needed for long", 11*time.Hour, false, 5)
		check("for half a day", 2*time.Hour, true, 6)
	})
}

// The watched slices show that proxies are missing, for example when their Service was deleted.
func TestMissingProxiesAreCheckedAtOnce(t *testing.T) {
	cluster := &fakeCluster{nodes: 10, proxies: 10}
	w := cluster.watcher()
	if !w.proxiesCoverNodes(t.Context(), false) {
		t.Fatal("proxies on all nodes do not cover the nodes")
	}
	for i := range 9 {
		w.state.put(convert.OtherNodes, nodeObject(fmt.Sprint("n", i), nil))
	}
	if !w.proxiesCoverNodes(t.Context(), true) || cluster.requests != 1 {
		t.Errorf("all proxies watched: not covered, or %d requests", cluster.requests)
	}
	for i := range 2 {
		w.state.remove(convert.OtherNodes, model.ObjectName{Name: fmt.Sprint("n", i)})
	}
	if w.proxiesCoverNodes(t.Context(), true) || cluster.requests != 2 {
		t.Errorf("two of ten proxies missing: covered, or %d requests", cluster.requests)
	}
}

// A Service may need labels that the proxies' slices lack. The source must not be chosen again for each change.
func TestAnotherSourceIsChosenAtOnce(t *testing.T) {
	proxies := (&Watcher{}).sourceFrom(model.TopologyFromProxies)
	d := newWatcher(listWatches{}, Options{}).onDemand[0]
	s := d.watcher.state
	check := func(what string, active *source, wantNeeded, wantInsufficient bool) {
		t.Helper()
		if needed, insufficient := d.reevaluate(active); needed != wantNeeded || insufficient != wantInsufficient {
			t.Errorf("%s: needed %v, insufficient %v", what, needed, insufficient)
		}
	}
	w := &testState{s}
	check("no Service", &proxies, false, false)
	w.bounded(80)
	check("a bound by zones", &proxies, true, false)
	w.service("racked", 81, rack)
	check("racks", &proxies, true, true)
	nodes := d.watcher.sourceFrom(model.TopologyFromNodes)
	check("racks, from Nodes", &nodes, true, false)
	check("racks, without a source", nil, true, false)
}
