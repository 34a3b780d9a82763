package apiserver_test

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

func load(t *testing.T, config *rest.Config, node string, nodes apiserver.Nodes) (convert.Update, error) {
	t.Helper()
	cluster, err := apiserver.New(config, apiserver.Options{View: convert.View{Node: node}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Load(t.Context(), nodes)
}

func TestLoadReturnsFirstUpdateOfRun(t *testing.T) {
	w := newWriter(t)
	self := w.node("self", zoneLabel+"=zone-a", rackLabel+"=rack-1", "example.com/row=row-1")
	w.node("other", zoneLabel+"=zone-a", rackLabel+"=rack-1", "example.com/row=row-1")
	w.service("web", keyed(rackLabel))
	w.slice("web-1", "web", "10.0.0.1")
	w.slice("bad-1", "web")
	w.patchSlice("bad-1", `{"ports": [{"name": "http", "port": 70000}]}`)

	want := follow(t, admin(), self, "").started().since(0)[0]
	got, err := load(t, admin(), self, apiserver.LocalNode)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("Load() (-first update +got):\n%s", diff)
	}
}

func TestLoadReturnsAllNodesIfRequested(t *testing.T) {
	w := newWriter(t)
	self := w.node("self", zoneLabel+"=zone-a", rackLabel+"=rack-1")
	other := w.node("other", zoneLabel+"=zone-b", rackLabel+"=rack-2", "example.com/row=row-1")
	all := map[string]string{zoneLabel: "zone-b", rackLabel: "rack-2", "example.com/row": "row-1"}
	for name, node := range map[string]string{"with a node": self, "without a node": ""} {
		t.Run(name+", without keys", func(t *testing.T) {
			got, err := load(t, admin(), node, apiserver.AllNodes)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(all, got.Change.Nodes[other].Labels); diff != "" {
				t.Errorf("the other node's labels (-want +got):\n%s", diff)
			}
		})
	}
	w.service("web", keyed(rackLabel))
	got, err := load(t, admin(), self, apiserver.AllNodes)
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]map[string]string{
		self: {zoneLabel: "zone-a", rackLabel: "rack-1"}, other: all,
	} {
		if diff := cmp.Diff(want, got.Change.Nodes[node].Labels); diff != "" {
			t.Errorf("labels of %s (-want +got):\n%s", node, diff)
		}
	}
	if got.Change.Services[w.name("web")] == nil {
		t.Error("the Service with a key is missing")
	}
}

func TestLoadReportsForbiddenList(t *testing.T) {
	_, err := load(t, api.User(t, "user-without-rights"), "none", apiserver.LocalNode)
	if err == nil || !strings.HasPrefix(err.Error(), "list services: ") || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("Load() = %v, want that listing Services is forbidden", err)
	}
}

// TestLastKnownGoodVersionComesFromRunningProxy checks that an invalid object does not replace its last known
// good version.
func TestLastKnownGoodVersionComesFromRunningProxy(t *testing.T) {
	w := newWriter(t)
	self := w.node("self")
	w.service("web")
	w.slice("web-1", "web", "10.0.0.1")
	w.slice("never-1", "web")
	w.patchSlice("never-1", `{"ports": [{"name": "http", "port": 70000}]}`)
	f := follow(t, admin(), self, "").started()
	bad, never := w.name("web-1"), w.name("never-1")
	w.patchSlice("web-1", `{"ports": [{"name": "http", "port": 70000}]}`)
	f.waitUntil("the slice is rejected", func(*model.Cluster) bool { return rejectedCount(f, bad.Name, never.Name) == 2 })

	text, err := json.Marshal(f.Rejections()) // as the proxy serves it
	if err != nil {
		t.Fatal(err)
	}
	var rejections []convert.Rejection
	if err := json.Unmarshal(text, &rejections); err != nil || len(rejections) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	watcher, err := apiserver.New(admin(), apiserver.Options{
		View: convert.View{Node: self}, Log: slog.New(slog.DiscardHandler), LastKnownGood: rejections,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := watcher.Load(t.Context(), apiserver.LocalNode)
	if err != nil {
		t.Fatal(err)
	}
	slice := got.Change.Slices[bad]
	if slice == nil || len(slice.Endpoints) != 1 || slice.Ports[0].Port == 0 || got.Change.Slices[never] != nil || len(got.NewProblems) != 2 {
		t.Errorf("active slices %+v, rejected %v", got.Change.Slices, got.NewProblems)
	}
}
