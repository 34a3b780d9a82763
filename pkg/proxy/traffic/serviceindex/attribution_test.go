//go:build linux

package serviceindex

import (
	"cmp"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

var (
	web = model.ObjectName{Namespace: "shop", Name: "web"}
	api = model.ObjectName{Namespace: "shop", Name: "api"}
)

func applyDecisions(r *Index, decisions ...selection.Decision) {
	r.OnApplied(decisions[0].Service.Name, r.Derive(decisions))
}

// entry returns a connection that our rules sent to an endpoint.
func entry(client, origDst, endpoint string) conntrack.Entry {
	e := foreignEntry(client, origDst, endpoint)
	e.Labels[ruleset.TranslatedLabel/8] = 1 << (ruleset.TranslatedLabel % 8)
	return e
}

// foreignEntry returns a connection that the rules of another program sent to an endpoint.
func foreignEntry(client, origDst, endpoint string) conntrack.Entry {
	return conntrack.Entry{
		Protocol: model.TCP, Status: conntrack.DestinationNAT,
		Original: conntrack.Tuple{Source: addrPort(client), Destination: addrPort(origDst)},
		Reply:    conntrack.Tuple{Source: addrPort(endpoint), Destination: addrPort(client)},
	}
}

// attributionText formats an attribution: shop/web same_zone topology.kubernetes.io/zone b.
func attributionText(attribution *Attribution) string {
	if attribution == nil {
		return "none"
	}
	placement := attribution.Placement
	return fmt.Sprint(attribution.Service, " ", placement.Proximity, " ", placement.Tier, " ", placement.Zone)
}

func TestConnectionsAreAttributed(t *testing.T) {
	index := New(0)
	applyDecisions(index,
		decision(web, clusterIP("10.96.0.1:80"), map[string]string{
			"10.0.1.1:8080": "node-1", "10.0.2.1:8080": "node-2", "10.0.3.1:8080": "node-3", "10.0.9.1:8080": "node-9", "10.0.9.2:8080": "",
		}, policy.Hostname, policy.Zone, policy.AnyNode),
		decision(web, nodePort(30080), map[string]string{"10.0.3.1:8080": "node-3"}),
	)
	applyDecisions(index, decision(api, clusterIP("[fd00:96::1]:443"), map[string]string{"[fd00::3]:443": "node-3"}))
	index.OnSynced(selection.SyncState{Scope: selection.Scope{NodePorts: []netip.Addr{addrPort("192.0.2.1:1").Addr()}}})
	for name, test := range map[string]struct {
		entry conntrack.Entry
		want  string
		atEnd string // if the DESTROY event alone gives another result
	}{
		"this node":    {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080"), "shop/web same_node kubernetes.io/hostname a", ""},
		"this zone":    {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.2.1:8080"), "shop/web same_zone topology.kubernetes.io/zone a", ""},
		"another zone": {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080"), "shop/web other_zone * b", ""},
		"a node without a zone": {
			entry("10.0.1.9:1", "10.96.0.1:80", "10.0.9.1:8080"), "shop/web unknown * ", "",
		},
		"no node":             {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.9.2:8080"), "shop/web unknown * ", ""},
		"an unknown endpoint": {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.8.8:8080"), "shop/web unknown none ", ""},
		"a node port":         {entry("10.0.1.9:1", "192.0.2.1:30080", "10.0.3.1:8080"), "shop/web other_zone none b", ""},
		"a node port, to an endpoint that was removed long ago": {
			entry("10.0.1.9:1", "192.0.2.1:30080", "10.0.8.8:8080"), "shop/web unknown none ", "none",
		},
		"a node port, on an address that no longer serves any": {
			entry("10.0.1.9:1", "192.0.2.2:30080", "10.0.3.1:8080"), "shop/web other_zone none b", "none",
		},
		"another program's, to the node port's number": {foreignEntry("10.0.1.9:1", "192.0.2.1:30080", "10.0.8.8:8080"), "none", ""},
		"another program's, to the node port's number at another address, and its endpoint": {
			foreignEntry("10.0.1.9:1", "192.0.2.2:30080", "10.0.3.1:8080"), "none", "",
		},
		"another program's, to the node port's number and its endpoint": {
			foreignEntry("10.0.1.9:1", "192.0.2.1:30080", "10.0.3.1:8080"), "none", "shop/web other_zone none b",
		},
		"another program's, to the ClusterIP": {
			foreignEntry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080"), "none", "shop/web other_zone * b",
		},
		"a port mapping": {foreignEntry("10.0.1.9:1", "192.0.2.1:8080", "10.0.3.1:8080"), "none", ""},
		"IPv6":           {entry("[fd00::9]:1", "[fd00:96::1]:443", "[fd00::3]:443"), "shop/api other_zone none b", ""},
		"no translation": {
			func() conntrack.Entry {
				e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080")
				e.Status = conntrack.SeenReply
				return e
			}(), "none", "",
		},
		"another protocol": {
			func() conntrack.Entry {
				e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080")
				e.Protocol = model.UDP
				return e
			}(), "none", "",
		},
		"another zone of conntrack": {
			func() conntrack.Entry {
				e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080")
				e.Zone = 7
				return e
			}(), "none", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := attributionText(index.Attribute(&test.entry)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			test.entry.Labels = [16]byte{} // DESTROY events have none
			if got, want := attributionText(index.AttributeEnded(&test.entry)), cmp.Or(test.atEnd, test.want); got != want {
				t.Errorf("at its end: got %q, want %q", got, want)
			}
		})
	}
}

// Removed endpoints and Services are retained as long, because a TCP connection may end late.
func TestRemovedFrontendsAreAttributedForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := New(0)
		frontend := clusterIP("10.96.0.1:80")
		e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080")
		check := func(when, want string) {
			t.Helper()
			index.OnSynced(selection.SyncState{})
			if got := attributionText(index.Attribute(&e)); got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		applyDecisions(index, decision(web, frontend, map[string]string{"10.0.3.1:8080": "node-3"}))
		check("at first", "shop/web other_zone none b")
		applyDecisions(index, decision(web, frontend, map[string]string{"10.0.1.1:8080": "node-1"}))
		check("the endpoint was removed", "shop/web other_zone none b")
		time.Sleep(9 * time.Minute)
		applyDecisions(index, decision(web, frontend, map[string]string{"10.0.2.1:8080": "node-2"}))
		check("nine minutes later", "shop/web other_zone none b")
		time.Sleep(2 * time.Minute)
		applyDecisions(index, decision(web, frontend, map[string]string{"10.0.2.2:8080": "node-2"}))
		check("eleven minutes later", "shop/web unknown none ")
		applyDecisions(index, decision(web, frontend, map[string]string{"10.0.3.1:8080": "node-3"}))
		check("it was added again", "shop/web other_zone none b")
		index.OnApplied(web, nil)
		check("the Service was deleted", "shop/web other_zone none b")
		if index.Has(web) {
			t.Error("the Service still exists")
		}
		if found := index.Snapshot().Lookup(model.TCP, addrPort("10.96.0.1:80")); found != nil {
			t.Errorf("the frontend still belongs to %s", found.Service)
		}
		time.Sleep(9 * time.Minute)
		check("nine minutes after the deletion", "shop/web other_zone none b")
		applyDecisions(index, decision(web, frontend, map[string]string{"10.0.1.1:8080": "node-1"}))
		check("the Service was created again, with another endpoint", "shop/web other_zone none b")
		index.OnApplied(web, nil)
		index.OnSynced(selection.SyncState{})
		time.Sleep(11 * time.Minute)
		check("after eleven minutes", "none")
		if len(index.formerFrontends.order)+len(index.formerEndpoints.order) > 0 {
			t.Errorf("%v and %v are kept", index.formerFrontends.order, index.formerEndpoints.order)
		}
	})
}

// The order in which the changes are applied does not matter.
func TestAFrontendBelongsToItsNewestOwner(t *testing.T) {
	frontend, endpoint := clusterIP("10.96.0.1:80"), map[string]string{"10.0.1.1:8080": "node-1"}
	e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080")
	webs, apis := decision(web, frontend, endpoint), decision(api, frontend, endpoint)
	without := decision(web, clusterIP("10.96.0.2:80"), endpoint)
	for name, move := range map[string]func(*Index){
		"the new one first": func(index *Index) { applyDecisions(index, apis); applyDecisions(index, without) },
		"the old one first": func(index *Index) { applyDecisions(index, without); applyDecisions(index, apis) },
		"the old one loses first": func(index *Index) {
			index.OnFrontendsLost(web, []model.Frontend{frontend.Frontend})
			applyDecisions(index, apis)
		},
		"the old one loses later": func(index *Index) {
			applyDecisions(index, apis)
			index.OnFrontendsLost(web, []model.Frontend{frontend.Frontend})
		},
		"the old one is deleted": func(index *Index) { applyDecisions(index, apis); index.OnApplied(web, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			index := New(0)
			applyDecisions(index, webs)
			index.OnSynced(selection.SyncState{})
			move(index)
			index.OnSynced(selection.SyncState{})
			if got := attributionText(index.Attribute(&e)); got != "shop/api same_node none a" {
				t.Errorf("attributed to %q", got)
			}
			index.OnFrontendsLost(api, []model.Frontend{frontend.Frontend})
			index.OnSynced(selection.SyncState{})
			if got := attributionText(index.Attribute(&e)); got != "shop/api same_node none a" {
				t.Errorf("without an owner: attributed to %q", got)
			}
			applyDecisions(index, webs)
			index.OnSynced(selection.SyncState{})
			if got := attributionText(index.Attribute(&e)); got != "shop/web same_node none a" {
				t.Errorf("with the old owner again: attributed to %q", got)
			}
		})
	}
}

// decision returns a decision on node-1, in zone a, about a Service whose endpoints are given by their nodes: node-1
// and node-2 are in zone a, node-3 in zone b.
func decision(service model.ObjectName, frontend model.PortFrontend, endpoints map[string]string, keys ...policy.Key) selection.Decision {
	modelService := &model.Service{Name: service, Topology: policy.Topology{Keys: keys}}
	labels := map[string]map[string]string{
		"node-1": {string(policy.Zone): "a"}, "node-2": {string(policy.Zone): "a"}, "node-3": {string(policy.Zone): "b"}, "node-9": {},
	}
	d := selection.Decision{
		Service: modelService, Frontends: []model.PortFrontend{frontend}, Port: model.ServicePort{Protocol: model.TCP},
		Viewpoint: selection.NodeView{
			Node:   model.Node{Name: "node-1", Labels: labels["node-1"]},
			Labels: func(node string) (map[string]string, bool) { return labels[node], labels[node] != nil },
		},
	}
	for addr, node := range endpoints {
		d.Endpoints = append(d.Endpoints, model.PortEndpoint{
			Addr: addrPort(addr), Endpoint: model.Endpoint{Node: node, Zone: labels[node][string(policy.Zone)], Ready: true},
		})
	}
	d.Selection = selection.Select(modelService, false, d.Endpoints, d.Viewpoint)
	return d
}

func clusterIP(text string) model.PortFrontend {
	return model.PortFrontend{Frontend: model.Frontend{Addr: addrPort(text).Addr(), Protocol: model.TCP, Port: addrPort(text).Port()}}
}

func nodePort(number uint16) model.PortFrontend {
	return model.PortFrontend{
		Frontend: model.Frontend{Addr: netip.IPv4Unspecified(), Protocol: model.TCP, Port: number}, Kind: model.NodePort,
	}
}
