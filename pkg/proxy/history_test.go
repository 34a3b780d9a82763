package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

const self = "node-0"

var bothFamilies = ruleset.Config{
	Families:     model.Families,
	LocalTraffic: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
}

// history makes random changes of a small cluster: few names, so that objects meet, replace and share with each other.
type history struct {
	random *rand.Rand
}

func newHistory(seed uint64) *history { return &history{rand.New(rand.NewPCG(seed, seed))} }

func (h *history) change() model.Change {
	var change model.Change
	for range 1 + h.random.IntN(3) {
		change = change.Then(h.single())
	}
	return change
}

func (h *history) single() model.Change {
	switch h.random.IntN(10) {
	case 0:
		return model.Change{Services: map[model.ObjectName]*model.Service{h.name(): nil}}
	case 1:
		return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{h.sliceName(): nil}}
	case 2:
		node := h.node()
		return model.Change{Nodes: map[string]*model.Node{node: nil}}
	case 3:
		node := &model.Node{Name: h.node(), Labels: map[string]string{string(policy.Zone): h.zone(), "example.com/rack": h.zone()}}
		return model.Change{Nodes: map[string]*model.Node{node.Name: node}}
	case 4, 5, 6:
		service := h.service()
		return model.Change{Services: map[model.ObjectName]*model.Service{service.Name: service}}
	default:
		slice := h.slice()
		return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}
	}
}

func (h *history) name() model.ObjectName {
	return model.ObjectName{Namespace: "default", Name: fmt.Sprintf("service-%d", h.random.IntN(4))}
}

func (h *history) sliceName() model.ObjectName {
	return model.ObjectName{Namespace: "default", Name: fmt.Sprintf("slice-%d", h.random.IntN(8))}
}

func (h *history) node() string { return fmt.Sprintf("node-%d", h.random.IntN(3)) }

func (h *history) zone() string { return fmt.Sprintf("zone-%d", h.random.IntN(2)) }

func (h *history) sometimes() bool { return h.random.IntN(3) == 0 }

// service returns a Service whose ClusterIP it may have in common with another one.
func (h *history) service() *model.Service {
	name := h.name()
	number := int(name.Name[len(name.Name)-1] - '0')
	if h.sometimes() {
		number = 0
	}
	service := &model.Service{
		Name:    name,
		Created: time.Unix(int64(h.random.IntN(3)), 0),
		ClusterIPs: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 96, 0, byte(number + 1)}),
			netip.MustParseAddr(fmt.Sprintf("fd00:96::%d", number+1)),
		}[:1+h.random.IntN(2)],
		Ports: []model.ServicePort{
			{Name: "http", Protocol: model.TCP, Port: 80},
			{Name: "dns", Protocol: model.UDP, Port: 53},
			{Name: "peer", Protocol: model.SCTP, Port: 80},
		}[:1+h.random.IntN(3)],
		InternalTrafficLocal: h.sometimes(),
	}
	if h.sometimes() {
		service.AffinityTimeout = time.Duration(1+h.random.IntN(2)) * time.Hour
	}
	if h.sometimes() {
		service.Topology.Keys = [][]policy.Key{{"kubernetes.io/hostname"}, {policy.Zone, "*"}, {"example.com/rack"}}[h.random.IntN(3)]
	}
	return service
}

func (h *history) slice() *model.EndpointSlice {
	slice := &model.EndpointSlice{
		Name:    h.sliceName(),
		Service: h.name(),
		Family:  model.Families[h.random.IntN(2)],
		Ports: []model.SlicePort{
			{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 53},
			{Name: "peer", Protocol: model.SCTP, Port: 9},
		},
	}
	for _, number := range h.random.Perm(6)[:h.random.IntN(6)] {
		addr := netip.AddrFrom4([4]byte{10, 244, 0, byte(number + 1)})
		if slice.Family == model.IPv6 {
			addr = netip.MustParseAddr(fmt.Sprintf("fd00:244::%d", number+1))
		}
		endpoint := model.Endpoint{Node: h.node(), Zone: h.zone(), Ready: !h.sometimes(), Serving: true, Terminating: h.sometimes()}
		if h.sometimes() {
			endpoint.HintZones = []string{h.zone()}
		}
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addr, Endpoint: endpoint})
	}
	return slice
}

// state is what tables hold, but for the order of slots, which depends on what came before and means nothing to traffic.
type state struct {
	Objects  ruleset.Objects
	Elements map[string][]ruleset.Element
	Slots    map[ruleset.Tuple][]netip.AddrPort
}

func stateOf(t testing.TB, kernel *memoryKernel, family model.Family) state {
	t.Helper()
	result := state{
		Objects:  kernel.Tables.Objects(family),
		Elements: map[string][]ruleset.Element{},
		Slots:    map[ruleset.Tuple][]netip.AddrPort{},
	}
	for _, set := range ruleset.StaticSets {
		elements, err := kernel.Tables.Elements(family, set)
		if err != nil {
			t.Fatalf("read %s: %v", set.Name, err)
		}
		if set.Name != ruleset.Endpoints.Name {
			result.Elements[set.Name] = elements
			continue
		}
		for _, element := range elements {
			frontend := element.Key
			frontend.Number = 0
			result.Slots[frontend] = append(result.Slots[frontend], netip.AddrPortFrom(element.Value.Addr, element.Value.Port))
		}
	}
	for _, slots := range result.Slots {
		slices.SortFunc(slots, netip.AddrPort.Compare)
	}
	return result
}

// likeFreshStart checks that the kernel holds what a proxy that starts now, with the same cluster, would write.
func likeFreshStart(t testing.TB, kernel *memoryKernel, everything model.Change) {
	t.Helper()
	likeFreshStartOn(t, self, kernel, everything)
}

func likeFreshStartOn(t testing.TB, node string, kernel *memoryKernel, everything model.Change) {
	t.Helper()
	fresh := &memoryKernel{}
	starting := proxy.New(node, bothFamilies, fresh)
	starting.Apply(everything)
	mustSync(t, starting)
	for _, family := range model.Families {
		opts := cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})
		if diff := cmp.Diff(stateOf(t, fresh, family), stateOf(t, kernel, family), opts); diff != "" {
			t.Fatalf("%s table (-fresh start +after the history):\n%s", family, diff)
		}
	}
}

func mustSync(t testing.TB, p *proxy.Proxy) proxy.Report {
	t.Helper()
	report, err := p.Sync(t.Context())
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	if report.Unswept != nil {
		t.Fatalf("sync left something over: %v", report.Unswept)
	}
	return report
}

// TestAnyHistoryEndsLikeAFreshStart: after any sequence of changes, the kernel's state is that of a fresh start with the
// final state.
func TestAnyHistoryEndsLikeAFreshStart(t *testing.T) {
	for seed := range uint64(60) {
		kernel := &memoryKernel{}
		running, everything, changes := proxy.New(self, bothFamilies, kernel), model.Change{}, newHistory(seed)
		for range 40 {
			change := changes.change()
			everything = everything.Then(change)
			running.Apply(change)
			mustSync(t, running)
			likeFreshStart(t, kernel, everything)
		}
	}
}

// TestHistoriesConvergeThoughCommitsFail: commits that fail at random, before or after they are done, change nothing of that.
func TestHistoriesConvergeThoughCommitsFail(t *testing.T) {
	for seed := range uint64(60) {
		changes := newHistory(seed)
		kernel := &memoryKernel{}
		failing := &faultyKernel{kernel, func() (bool, bool) { return changes.random.IntN(5) == 0, changes.random.IntN(5) == 0 }}
		running, everything := proxy.New(self, bothFamilies, failing), model.Change{}
		failed := 0
		for range 30 {
			change := changes.change()
			everything = everything.Then(change)
			running.Apply(change)
			for {
				report, err := running.Sync(t.Context())
				if err == nil && report.Unswept == nil {
					break
				}
				if failed++; failed > 1000 {
					t.Fatalf("seed %d: does not converge, last error: %v", seed, err)
				}
			}
			likeFreshStart(t, kernel, everything)
		}
		if failed == 0 {
			t.Fatalf("seed %d: no commit failed, so nothing was tested", seed)
		}
	}
}
