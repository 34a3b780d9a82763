package drift

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/competing"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

func shop(endpoints ...string) model.Change {
	name := model.ObjectName{Namespace: "shop", Name: "web"}
	slice := &model.EndpointSlice{
		Name: model.ObjectName{Namespace: "shop", Name: "web-1"}, Service: name, Family: model.IPv4,
		Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}},
	}
	for _, addr := range endpoints {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: netip.MustParseAddr(addr), Endpoint: model.Endpoint{Ready: true, Serving: true},
		})
	}
	return model.Change{
		Services: map[model.ObjectName]*model.Service{name: {
			Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		}},
		Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice},
	}
}

func TestDesiredTablesDifferByTheChange(t *testing.T) {
	want := func(change model.Change) DesiredState {
		t.Helper()
		desired, err := Desired(t.Context(), "node-a", ruleset.Config{Families: model.Families}, dns.Zone{}, change, nil)
		if err != nil {
			t.Fatal(err)
		}
		return desired
	}
	one, two := want(shop("10.244.0.1")), want(shop("10.244.0.1", "10.244.0.2"))
	if one.Services != 1 || one.DNSServices != 0 {
		t.Errorf("%d Services, %d in DNS", one.Services, one.DNSServices)
	}
	objects := func(state *DesiredState) ruleset.Objects {
		objects := ruleset.Objects{Table: true}
		sets, _ := state.Tables.Sets(model.IPv4)
		for _, set := range sets {
			elements, err := state.Tables.Elements(model.IPv4, set)
			if err != nil {
				t.Fatal(err)
			}
			objects.Add(set.Name, elements)
		}
		for _, chain := range state.Tables.Chains(model.IPv4) {
			objects.Chains = append(objects.Chains, chain.Name)
		}
		return objects
	}
	if differences := one.Tables.Differences(model.IPv4, objects(&one)); len(differences) > 0 {
		t.Errorf("a table differs from itself: %v", differences)
	}
	if differences := two.Tables.Differences(model.IPv4, objects(&one)); len(differences) == 0 {
		t.Error("an added endpoint is not a difference")
	}
}

func TestCompare(t *testing.T) {
	now := time.Unix(1, 0)
	good := func() Node {
		return Node{Proxy: &status.Summary{InSyncSince: &now}, Kernel: Kernel{InSync: true},
			Invalid: []InvalidObject{{ReportedByProxy: true, HasLastKnownGood: true}}}
	}
	for what, test := range map[string]struct {
		spoil           func(*Node)
		agrees, inForce bool
	}{
		"everything is fine":      {func(*Node) {}, true, true},
		"no active version":       {func(n *Node) { n.Invalid[0].HasLastKnownGood = false }, true, false},
		"not reported as invalid": {func(n *Node) { n.Invalid[0].ReportedByProxy = false }, false, true},
		"another proxy":           {func(n *Node) { n.Kernel.OtherProxies = []competing.Conflict{{}} }, false, true},
		"the kernel differs":      {func(n *Node) { n.Kernel.InSync = false }, false, true},
		"no proxy responds":       {func(n *Node) { n.Proxy = nil }, false, true},
		"the proxy fails":         {func(n *Node) { n.Proxy.LastError = "no space" }, false, true},
		"changes are queued":      {func(n *Node) { n.Proxy.InSyncSince = nil }, false, true},
	} {
		node := good()
		test.spoil(&node)
		if allActive := node.Compare(); node.InSync != test.agrees || allActive != test.inForce {
			t.Errorf("%s: in sync %v, active %v", what, node.InSync, allActive)
		}
	}
}

func TestInvalidObjectsAreComparedWithTheProxys(t *testing.T) {
	web := model.Finding{Kind: "Service", Name: model.ObjectName{Namespace: "shop", Name: "web"}, Code: model.Invalid, Reason: "no"}
	file := model.Finding{File: "a.yaml", Code: model.Invalid, Reason: "it is no YAML"}
	ignored := model.Finding{Kind: "Service", Name: web.Name, Code: model.ValueIgnored}
	rejections := []convert.Rejection{{Kind: "Service", Name: web.Name}}
	got := InvalidObjects([]model.Finding{web, file, ignored}, rejections)
	if len(got) != 2 || got[0].Object != "Service shop/web" || !got[0].ReportedByProxy || got[0].HasLastKnownGood ||
		got[1].Object != "a.yaml" || got[1].ReportedByProxy {
		t.Errorf("got %+v, want the Service as reported, and the file as unreported", got)
	}
}
