package proxy_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// flowsStep is a change, and the frontends whose flows are looked at in its sync.
type flowsStep struct {
	title  string
	change model.Change
	want   []string
}

// runFlowsSteps syncs after each step.
func runFlowsSteps(t *testing.T, steps []flowsStep) {
	t.Helper()
	flows := &recordedFlows{}
	p := proxy.New(self, bothFamilies, &memoryKernel{}, noting(flows))
	for _, step := range steps {
		p.Apply(step.change)
		mustSync(t, p)
		wantFlows(t, step.title, flows, step.want...)
	}
}

func TestAFrontendMovesToAnotherServiceInTwoSyncs(t *testing.T) {
	runFlowsSteps(t, []flowsStep{
		{title: "one has it", change: oneService(nameService("one", "10.96.0.1", externalIP("192.0.2.1")), answeredBy("one", 1)).
			Then(oneService(nameService("two", "10.96.0.2"), answeredBy("two", 2))),
			want: []string{"10.96.0.1:53/UDP [10.244.0.1:53]", "10.96.0.2:53/UDP [10.244.0.2:53]", "192.0.2.1:53/UDP [10.244.0.1:53]"}},
		{title: "no Service has it", change: oneService(nameService("one", "10.96.0.1"), nil), want: []string{"192.0.2.1:53/UDP []"}},
		{title: "two has it", change: oneService(nameService("two", "10.96.0.2", externalIP("192.0.2.1")), nil),
			want: []string{"192.0.2.1:53/UDP [10.244.0.2:53]"}},
		{title: "two is deleted", change: without("two"), want: []string{"10.96.0.2:53/UDP []", "192.0.2.1:53/UDP []"}},
		{title: "nothing happens"},
	})
}

// TestOnlyFlowsThatTheKernelAcceptedAChangeForAreLookedAt: before that they may go on, because their endpoint still
// serves new ones.
func TestOnlyFlowsThatTheKernelAcceptedAChangeForAreLookedAt(t *testing.T) {
	kernel, flows := &scriptedKernel{}, &recordedFlows{}
	p := proxy.New(self, bothFamilies, kernel, noting(flows))
	p.Apply(oneService(nameService("dns", "10.96.0.1"), answeredBy("dns", 1)))
	mustSync(t, p)
	flows.take()
	kernel.refuse = refuseAll
	p.Apply(answers(answeredBy("dns", 2)))
	if _, err := p.Sync(t.Context()); !errors.Is(err, errInjected) {
		t.Fatalf("error %v, want the injected one", err)
	}
	wantFlows(t, "while the kernel refuses", flows)
	kernel.refuse = nil
	mustSync(t, p)
	wantFlows(t, "when it accepts", flows, "10.96.0.1:53/UDP [10.244.0.2:53]")
}

// TestACompleteSyncLooksAtAllFlows, because it is unknown what happened to them.
func TestACompleteSyncLooksAtAllFlows(t *testing.T) {
	flows := &recordedFlows{}
	p := proxy.New(self, bothFamilies, &memoryKernel{}, noting(flows))
	p.Apply(oneService(nameService("one", "10.96.0.1"), answeredBy("one", 1)))
	p.Apply(oneService(nameService("two", "10.96.0.2", nodePort(30053)), nil))
	mustSync(t, p)
	flows.take()
	p.Distrust()
	p.Apply(without("one"))
	if report := mustSync(t, p); !report.Complete {
		t.Error("the sync was not complete")
	}
	wantFlows(t, "the complete sync", flows, "*:30053/UDP []", "10.96.0.1:53/UDP []", "10.96.0.2:53/UDP []")
}

// TestAProxyThatStartsRecallsTheFrontendsOfAnEarlierOne: their Services may have been deleted while none was running.
func TestAProxyThatStartsRecallsTheFrontendsOfAnEarlierOne(t *testing.T) {
	for name, kernel := range map[string]proxy.Kernel{"in memory": &memoryKernel{}, "in the kernel": newRealKernel(t)} {
		t.Run(name, func(t *testing.T) {
			earlier := starting(kernel)
			both := nameService("dns", "10.96.0.1", externalIP("192.0.2.1"), nodePort(30053))
			both.ClusterIPs = addrs("10.96.0.1", "fd00:96::1")
			earlier.Apply(oneService(both, answeredBy("dns", 1)))
			earlier.Apply(oneService(nameService("tcp", "10.96.0.3", port(model.TCP, 53), nodePort(30054)), nil))
			mustSync(t, earlier)

			flows := &recordedFlows{}
			p := proxy.New(self, bothFamilies, kernel, noting(flows))
			p.Apply(oneService(nameService("dns", "10.96.0.1"), answeredBy("dns", 2)))
			mustSync(t, p)
			wantFlows(t, "the first sync", flows, "*:30053/UDP []", "10.96.0.1:53/UDP [10.244.0.2:53]", "192.0.2.1:53/UDP []",
				"*:30053/UDP []", "[fd00:96::1]:53/UDP []")
			p.Distrust()
			mustSync(t, p)
			wantFlows(t, "a complete sync later", flows, "10.96.0.1:53/UDP [10.244.0.2:53]")
		})
	}
}

// TestWhatCannotBeRecalledDoesNotKeepAProxyFromStarting, nor does it make the tables anew.
func TestWhatCannotBeRecalledDoesNotKeepAProxyFromStarting(t *testing.T) {
	kernel := &scriptedKernel{}
	earlier := starting(kernel)
	earlier.Apply(oneService(nameService("dns", "10.96.0.1"), nil))
	mustSync(t, earlier)
	kernel.unreadable = errInjected
	var unrecalled error
	flows := noting(&recordedFlows{})
	flows.Unrecalled = func(err error) { unrecalled = err }
	p := starting(kernel, flows)
	p.Apply(oneService(nameService("dns", "10.96.0.1"), nil))
	if mustSync(t, p); !errors.Is(unrecalled, errInjected) {
		t.Errorf("reported %v, want the injected error", unrecalled)
	}
	unrecalled = nil
	p.Distrust()
	if mustSync(t, p); unrecalled != nil {
		t.Errorf("reported %v at the second sync", unrecalled)
	}
	if slices.ContainsFunc(kernel.batches, rebuilds) {
		t.Error("the tables were made anew")
	}
}

// TestFlowsToNodePortsAreLookedAtWhenTheirAddressesChange, and to nothing else.
func TestFlowsToNodePortsAreLookedAtWhenTheirAddressesChange(t *testing.T) {
	chosen := bothFamilies
	chosen.NodePorts.Prefixes = prefixes("172.16.0.0/16", "2001:db8::/32")
	change := oneService(nameService("dns", "10.96.0.1", nodePort(30053)), answeredBy("dns", 1)).
		Then(model.Change{LocalAddrs: addrs("127.0.0.1", "172.16.0.1")})
	nodePorts := []string{"*:30053/UDP [10.244.0.1:53]"}
	for name, test := range map[string]struct {
		config ruleset.Config
		now    []netip.Addr
		want   []string
	}{
		"an address appears":                      {chosen, addrs("127.0.0.1", "172.16.0.1", "172.16.0.2"), nodePorts},
		"an address vanishes":                     {chosen, addrs("127.0.0.1"), nodePorts},
		"an address appears that serves none":     {chosen, addrs("127.0.0.1", "172.16.0.1", "10.0.0.1"), nil},
		"an address appears where all serve":      {bothFamilies, addrs("127.0.0.1", "172.16.0.1", "10.0.0.1"), nodePorts},
		"an address of loopback, where all serve": {bothFamilies, addrs("127.0.0.1", "127.0.0.2", "172.16.0.1"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			flows := &recordedFlows{}
			p := proxy.New(self, test.config, &memoryKernel{}, noting(flows))
			p.Apply(change)
			mustSync(t, p)
			flows.take()
			p.Apply(model.Change{LocalAddrs: test.now})
			if report := mustSync(t, p); report.Complete || report.Services != 0 {
				t.Errorf("report %+v, want no Service decided", report)
			}
			wantFlows(t, "the change", flows, test.want...)
		})
	}
}

// TestFlowsAreJudgedByWhatAddressesMeanNow, and by the pods' ranges that are in the tables.
func TestFlowsAreJudgedByWhatAddressesMeanNow(t *testing.T) {
	flows := &recordedFlows{}
	p := proxy.New(self, ruleset.Config{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{PodCIDRs: true},
		NodePorts: model.NodePortAddresses{Primary: true}}, &memoryKernel{}, noting(flows))
	node := &model.Node{Name: self, Addresses: addrs("172.16.0.1"), PodCIDRs: prefixes("10.244.0.0/24")}
	p.Apply(oneService(nameService("dns", "10.96.0.1"), nil).Then(model.Change{
		Nodes: map[string]*model.Node{self: node}, LocalAddrs: addrs("127.0.0.1", "172.17.0.1", "172.16.0.1")}))
	mustSync(t, p)
	want := []noted{{
		flows: []selection.Flows{{Frontend: model.Frontend{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: model.UDP, Port: 53}}},
		scope: selection.Scope{Pods: node.PodCIDRs, NodePorts: addrs("172.16.0.1")},
	}}
	opts := cmp.Options{cmp.AllowUnexported(noted{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}
	if diff := cmp.Diff(want, flows.calls, opts); diff != "" {
		t.Errorf("what was asked (-want +got):\n%s", diff)
	}
}
