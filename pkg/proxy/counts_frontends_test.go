package proxy_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
)

// everyKind returns a Service with every kind of frontend.
func everyKind(edits ...func(*model.Service)) *model.Service {
	service := &model.Service{
		Name:            model.ObjectName{Namespace: "default", Name: "service-9000"},
		ClusterIPs:      addrs("10.97.0.1"),
		ExternalIPs:     addrs("192.0.2.7"),
		LoadBalancerIPs: addrs("203.0.113.1"),
		SourceRanges:    prefixes("10.0.0.0/8", "172.16.0.0/12"),
		Ports:           []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: 30080}},
	}
	for _, edit := range edits {
		edit(service)
	}
	return service
}

// TestAChangeOfAServiceWithEveryKindOfFrontendWritesOnlyWhatChanged, however many Services there are. A frontend has
// its own slots, so that what an endpoint costs is proportional to the frontends of its Service and to nothing else.
func TestAChangeOfAServiceWithEveryKindOfFrontendWritesOnlyWhatChanged(t *testing.T) {
	name := everyKind().Name
	replaced := sliceOf(name, 10)
	replaced.Endpoints[4].Addr = addrs("10.250.0.1")[0]
	here := sliceOf(name, 9)
	here.Endpoints[0].Node = self
	anotherRange := func(service *model.Service) { service.SourceRanges = prefixes("10.0.0.0/8", "172.16.0.0/16") }
	open := func(service *model.Service) { service.SourceRanges = nil }
	withoutExternalIP := func(service *model.Service) { service.ExternalIPs = nil }
	otherNodePort := func(service *model.Service) { service.Ports[0].NodePort = 30081 }
	owned := func(edits ...func(*model.Service)) model.Change { return oneService(everyKind(edits...), nil) }
	steps := []countedStep{
		{"it comes: four frontends with ten slots each, three that masquerade, one restricted to a list of two ranges, its ClusterIP",
			oneService(everyKind(), sliceOf(name, 10)), 4*(1+10) + 3 + 1 + 2 + 1, 0},
		{"another pod takes an endpoint's place: a slot of each frontend", answers(replaced), 4, 4},
		{"it comes again unchanged: nothing", oneService(everyKind(), replaced), 0, 0},
		{"an endpoint leaves: a slot and the class of each", answers(sliceOf(name, 9)), 4 + 4, 4 + 4 + 4},
		{"a range is replaced: the frontend leads to another list", owned(anotherRange), 1 + 2, 1 + 2},
		{"the ranges are gone, and what leads to the list", owned(open), 0, 1 + 2},
		{"the ranges are back", owned(), 1 + 2, 0},
		{"externalTrafficPolicy is Local: class and set of three frontends, the first dispatch entry for this split",
			owned(local), 3 + 3 + 1, 3 + 3},
		{"an endpoint of it is on this node: a local slot and the class of three, a dispatch entry for another, and a hairpin",
			answers(here), 3 + 3 + 1 + 1, 3 + 1},
		{"it is again elsewhere", answers(sliceOf(name, 9)), 3 + 1, 3 + 3 + 1 + 1},
		{"externalTrafficPolicy is Cluster again", owned(), 3 + 3, 3 + 3 + 1},
		{"the external IP is gone: its class and slots, and its set", owned(withoutExternalIP), 0, 1 + 9 + 1},
		{"the external IP is back", owned(), 1 + 9 + 1, 0},
		{"the node port is another one", owned(otherNodePort), 1 + 9 + 1, 1 + 9 + 1},
		{"it goes: everything", without(name.Name), 0, 4*(1+9) + 3 + 1 + 2 + 1},
	}
	checkCounts(t, steps)
}

// TestWhatBelongsToNoServiceWritesNoService: ranges of ClusterIPs are rules, addresses are elements if node ports are
// not served on all of them.
func TestWhatBelongsToNoServiceWritesNoService(t *testing.T) {
	for name, test := range map[string]struct {
		nodePorts      model.NodePortAddresses
		change         model.Change
		added, deleted int
	}{
		"a ServiceCIDR comes": {change: model.Change{ServiceCIDRs: map[string][]netip.Prefix{"more": prefixes("10.98.0.0/16")}}},
		"an address comes, and all addresses serve node ports": {change: model.Change{LocalAddrs: addrs("172.16.0.1", "172.16.0.2")}},
		"an address comes that serves node ports": {
			nodePorts: model.NodePortAddresses{Prefixes: prefixes("172.16.0.0/16")},
			change:    model.Change{LocalAddrs: addrs("172.16.0.1", "172.16.0.2")}, added: 1},
		"an address is another one": {
			nodePorts: model.NodePortAddresses{Prefixes: prefixes("172.16.0.0/16")},
			change:    model.Change{LocalAddrs: addrs("172.16.0.2")}, added: 1, deleted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			config := bothFamilies
			config.NodePorts = test.nodePorts
			p := proxy.New(self, config, &memoryKernel{})
			p.Apply(manyServices(100, 3).Then(model.Change{LocalAddrs: addrs("172.16.0.1")}))
			mustSync(t, p)
			p.Apply(test.change)
			report := mustSync(t, p)
			added, deleted := report.Added[model.IPv4], report.Deleted[model.IPv4]
			if report.Complete || report.Services != 0 || added != test.added || deleted != test.deleted {
				t.Errorf("report %+v, want no Service decided, %d elements added and %d deleted", report, test.added, test.deleted)
			}
		})
	}
}
