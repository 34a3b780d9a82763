package proxy_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func TestContestedFrontendsAreCounted(t *testing.T) {
	p := starting(&memoryKernel{})
	for _, step := range []struct {
		title  string
		change model.Change
		want   int
	}{
		{"one Service", oneService(nameService("a", "10.96.0.1", externalIP, nodePort(30053)), nil), 0},
		{"another with the same external IP", oneService(nameService("b", "10.96.0.2", externalIP), nil), 1},
		{"a third", oneService(nameService("c", "10.96.0.3", externalIP), nil), 1},
		{"nothing happens", model.Change{}, 1},
		{"the same node port", oneService(nameService("b", "10.96.0.2", externalIP, nodePort(30053)), nil), 2},
		{"the same ClusterIP", oneService(nameService("d", "10.96.0.1"), nil), 3},
		{"the third lets go", oneService(nameService("c", "10.96.0.3"), nil), 3},
		{"the second is deleted", without("b"), 1},
		{"the fourth is deleted", without("d"), 0},
	} {
		p.Apply(step.change)
		if got := mustSync(t, p).Contested; got != step.want {
			t.Errorf("%s: %d contested frontends, want %d", step.title, got, step.want)
		}
	}
}

// TestThePodsRangesOfTheNodeObjectAreWrittenOnce: they are in rules, so everything is written; a failure does not
// change that.
func TestThePodsRangesOfTheNodeObjectAreWrittenOnce(t *testing.T) {
	config := ruleset.Config{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{PodCIDRs: true}}
	node := func(ranges ...string) model.Change {
		return model.Change{Nodes: map[string]*model.Node{self: {Name: self, PodCIDRs: prefixes(ranges...)}}}
	}
	kernel := &scriptedKernel{}
	p := proxy.New(self, config, kernel)
	everything := manyServices(3, 2)
	for _, step := range []struct {
		title    string
		change   model.Change
		failures int
		complete bool
	}{
		{"the first sync", everything, 0, true},
		{"the Node appears", node("10.244.0.0/24"), 0, true},
		{"nothing happens", model.Change{}, 0, false},
		{"it comes again", node("10.244.0.0/24"), 0, false},
		{"it gets a second range", node("10.244.0.0/24", "fd00:244::/64"), 1, true},
		{"nothing happens again", model.Change{}, 0, false},
		{"another range", node("10.244.9.0/24", "fd00:244::/64"), 0, true},
		{"the Node's object goes", model.Change{Nodes: map[string]*model.Node{self: nil}}, 0, false},
		{"a Service changes", resized(1), 0, false},
	} {
		everything = thenAs(self, everything, step.change)
		p.Apply(step.change)
		kernel.refuse = refuseAll
		for range step.failures {
			if _, err := p.Sync(t.Context()); !errors.Is(err, errInjected) {
				t.Fatalf("%s: error %v, want the injected one", step.title, err)
			}
		}
		kernel.refuse = nil
		if report := mustSync(t, p); report.Complete != step.complete {
			t.Errorf("%s: complete is %v, want %v", step.title, report.Complete, step.complete)
		}
		likeFreshStartOf(t, self, config, &kernel.memoryKernel, everything)
	}
}

// syncs is a reader that keeps the selection.Sync of the last sync.
type syncs struct{ selection.Sync }

func (*syncs) Digest([]selection.Decision) any { return nil }
func (*syncs) Accept(model.ObjectName, any)    {}
func (s *syncs) Synced(sync selection.Sync)    { s.Sync = sync }

func TestTheAddressesOfNodePortsAreReported(t *testing.T) {
	config := bothFamilies
	config.NodePorts = model.NodePortAddresses{Primary: true}
	var last syncs
	p := proxy.New(self, config, &memoryKernel{}, &last)
	for _, step := range []struct {
		title  string
		change model.Change
		want   []netip.Addr
	}{
		{"the Node is unknown", model.Change{LocalAddrs: addrs("172.16.0.1", "2001:db8::1")}, nil},
		{"it appears", model.Change{Nodes: map[string]*model.Node{self: {Name: self, Addresses: addrs("172.16.0.1", "2001:db8::1")}}},
			addrs("172.16.0.1", "2001:db8::1")},
		{"a Service changes", manyServices(1, 1), addrs("172.16.0.1", "2001:db8::1")},
		{"an address vanishes", model.Change{LocalAddrs: addrs("2001:db8::1")}, addrs("2001:db8::1")},
	} {
		p.Apply(step.change)
		mustSync(t, p)
		if diff := cmp.Diff(step.want, last.Scope.NodePorts, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", step.title, diff)
		}
	}
}
