package syncer_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// history makes random changes of a small cluster: few names and addresses, so that objects conflict, replace each
// other and share addresses.
type history struct {
	random *rand.Rand
}

func newHistory(seed uint64) *history { return &history{rand.New(rand.NewPCG(seed, seed))} }

func (h *history) change() model.Change {
	var change model.Change
	for range 1 + h.random.IntN(3) {
		change = change.Merge(h.single())
	}
	return change
}

func (h *history) single() model.Change {
	switch h.random.IntN(16) {
	case 15:
		demotion := &model.Demotion{}
		if h.sometimes() {
			demotion = nil
		}
		return model.Change{Demotions: map[model.DemotionKey]*model.Demotion{{Node: h.node()}: demotion}}
	case 14:
		return model.Change{AllNodes: new(!h.sometimes())}
	case 0:
		return model.Change{Services: map[model.ObjectName]*model.Service{h.name(): nil}}
	case 1:
		return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{h.sliceName(): nil}}
	case 2:
		return model.Change{Nodes: map[string]*model.Node{h.node(): nil}}
	case 3, 4:
		node := h.nodeObject()
		return model.Change{Nodes: map[string]*model.Node{node.Name: node}}
	case 5:
		return model.Change{ServiceCIDRs: map[string][]netip.Prefix{fmt.Sprintf("cidr-%d", h.random.IntN(2)): h.serviceCIDR()}}
	case 6:
		return model.Change{LocalAddrs: some(h, append([]netip.Addr{netip.MustParseAddr("127.0.0.1")}, nodeAddrs...))}
	case 7, 8, 9, 10:
		service := h.service()
		return model.Change{Services: map[model.ObjectName]*model.Service{service.Name: service}}
	default:
		slice := h.slice()
		return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}
	}
}

// tenant changes or deletes a Service of a tenant that may exceed one batch.
func (h *history) tenant() model.Change {
	name := model.ObjectName{Namespace: "tenant", Name: fmt.Sprint("s-", h.random.IntN(4))}
	size := []int{3, syncer.MaxBatchWeight / 4, syncer.MaxBatchWeight + 1}[h.random.IntN(3)]
	change := largeService(name.Name, addrs("10.96.200.1", "10.96.200.2", "10.96.200.3")[h.random.IntN(3)], size)
	service := change.Services[name]
	if service.ExternalIPs = addrs("192.0.2.1", "192.0.2.2")[:h.random.IntN(3)]; h.random.IntN(4) == 0 {
		change.Services[name] = nil
	}
	return change
}

// The addresses overlap on purpose: an external IP may be a node's own address, another Service's ClusterIP, or its
// load-balancer IP.
var (
	nodeAddrs     = addrs("172.16.0.1", "172.16.0.2", "172.17.0.1", "2001:db8:172::1", "2001:db8:173::1")
	externalAddrs = addrs("192.0.2.1", "192.0.2.2", "10.96.0.1", "172.16.0.1", "2001:db8::1", "fd00:96::1")
	balancerAddrs = addrs("192.0.2.1", "192.0.2.3", "2001:db8::1", "2001:db8::3")
	// No two overlap: package convert merges overlapping ones.
	sourceRanges = prefixes("192.0.2.0/24", "10.0.0.0/8", "172.16.0.0/24", "2001:db8::/64", "2001:db8:172::/48", "fd00::/8")
)

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// some returns a few of the values, in their order; never nil.
func some[T any](h *history, values []T) []T {
	chosen := []T{}
	for _, value := range values {
		if h.sometimes() {
			chosen = append(chosen, value)
		}
	}
	return chosen
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

func (h *history) nodeObject() *model.Node {
	return &model.Node{
		Name:      h.node(),
		Labels:    map[string]string{string(policy.Zone): h.zone(), "example.com/rack": h.zone()},
		Addresses: some(h, []netip.Addr{nodeAddrs[h.random.IntN(3)], nodeAddrs[3+h.random.IntN(2)]}),
		PodCIDRs:  some(h, podRanges),
	}
}

func (h *history) serviceCIDR() []netip.Prefix {
	if h.sometimes() {
		return nil // the object is deleted
	}
	return some(h, prefixes("10.96.0.0/16", "10.97.0.0/16", "fd00:96::/108"))
}

// service returns a Service, which may share addresses with another one.
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
		h.bound(&service.Topology)
	}
	h.expose(service)
	return service
}

// bound gives a Service with keys a load bound, and perhaps clients.
func (h *history) bound(topology *policy.Topology) {
	if h.sometimes() {
		return
	}
	topology.MaxLoad = []uint64{100, 150}[h.random.IntN(2)]
	if h.sometimes() {
		topology.Clients = []string{h.name().String()}
	}
}

// expose gives a Service frontends in addition to its ClusterIPs, or none.
func (h *history) expose(service *model.Service) {
	service.ExternalIPs = some(h, externalAddrs)
	if h.sometimes() {
		return
	}
	service.ExternalTrafficLocal = h.sometimes()
	for i := range service.Ports {
		if !h.sometimes() { // the external IPs may have 80: a node port of that number conflicts
			service.Ports[i].NodePort = []uint16{30080, 30081, service.Ports[i].Port}[h.random.IntN(3)]
		}
	}
	if h.sometimes() {
		return
	}
	service.LoadBalancerIPs, service.SourceRanges = some(h, balancerAddrs), some(h, sourceRanges)
	if service.ExternalTrafficLocal {
		service.HealthCheckNodePort = uint16(32000 + h.random.IntN(2))
	}
}

func (h *history) slice() *model.EndpointSlice {
	slice := &model.EndpointSlice{
		Name:    h.sliceName(),
		Service: h.name(),
		Family:  model.Families[h.random.IntN(2)],
		Ports: []model.SlicePort{
			{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: uint16(53 + h.random.IntN(2))},
			{Name: "peer", Protocol: model.SCTP, Port: 9},
		},
	}
	for _, number := range h.random.Perm(6)[:h.random.IntN(6)] {
		addr := netip.AddrFrom4([4]byte{10, 244, 0, byte(number + 1)})
		if slice.Family == model.IPv6 {
			addr = netip.MustParseAddr(fmt.Sprintf("fd00:244::%d", number+1))
		}
		endpoint := model.Endpoint{Node: h.node(), Zone: h.zone(), Ready: !h.sometimes(), Serving: !h.sometimes(), Terminating: h.sometimes()}
		if h.sometimes() {
			endpoint.HintZones = []string{h.zone()}
		}
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addr, Endpoint: endpoint})
	}
	return slice
}
