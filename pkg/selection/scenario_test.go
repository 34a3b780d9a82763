package selection

import (
	"math/rand/v2"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// scenario is the complete input of a decision.
type scenario struct {
	service   model.Service
	port      model.ServicePort
	slices    []*model.EndpointSlice
	viewpoint NodeView
}

func (s *scenario) endpoints() []model.PortEndpoint {
	endpoints, _ := model.JoinSlices(&s.service, s.slices).Endpoints(s.port, model.IPv4)
	return endpoints
}

func (s *scenario) choose(endpoints []model.PortEndpoint) Selection {
	return Select(&s.service, s.service.IsExternal(s.port, model.IPv4), endpoints, s.viewpoint)
}

// byteSource derives choices from bytes, so that a fuzzer can steer them. It returns zeros after the last byte.
type byteSource struct {
	bytes []byte
}

func (b *byteSource) intN(limit int) int {
	if len(b.bytes) == 0 {
		return 0
	}
	first := b.bytes[0]
	b.bytes = b.bytes[1:]
	return int(first) % limit
}

func (b *byteSource) oneIn(chances int) bool { return b.intN(chances) == chances-1 }

func (b *byteSource) pick(words []string) string { return words[b.intN(len(words))] }

// There are so few names that endpoints collide, keys repeat and endpoints share nodes.
var (
	scenarioNodes = []string{"node-1", "node-2", "node-3", "node-4", ""}
	scenarioZones = []string{"a", "b", ""}
	scenarioKeys  = []string{hostname, zone, rack}
)

// newScenario derives a scenario from bytes; every sequence of bytes yields one.
func newScenario(bytes []byte) *scenario {
	source := &byteSource{bytes}
	s := &scenario{
		port:      model.ServicePort{Name: "web", Protocol: model.TCP, Port: 80},
		viewpoint: generateView(source),
		service: model.Service{
			ClusterIPs:           parseAddrs("10.96.0.1", "fd00:96::1"),
			InternalTrafficLocal: source.oneIn(4),
			ExternalTrafficLocal: source.oneIn(4),
			Topology:             policy.Topology{Keys: generateKeys(source)},
		},
	}
	generateFrontends(source, s)
	hintChances, readyChances := source.intN(3), source.intN(3)
	for range source.intN(4) {
		s.slices = append(s.slices, generateSlice(source, hintChances, readyChances))
	}
	return s
}

// generateFrontends gives the port external frontends of all kinds, some or none. Those of the other family have no
// effect.
func generateFrontends(source *byteSource, s *scenario) {
	if source.oneIn(4) {
		s.port.NodePort = 30080
	}
	lists := [][]netip.Addr{nil, nil, parseAddrs("2001:db8::1"), parseAddrs("2001:db8::1", "192.0.2.1")}
	s.service.ExternalIPs, s.service.LoadBalancerIPs = lists[source.intN(len(lists))], lists[source.intN(len(lists))]
}

func generateView(source *byteSource) NodeView {
	labelsByNode := map[string]map[string]string{}
	for _, node := range scenarioNodes[:4] {
		if source.oneIn(4) {
			continue
		}
		labelsByNode[node] = map[string]string{}
		for _, key := range []string{zone, rack} {
			if !source.oneIn(4) {
				labelsByNode[node][key] = source.pick(scenarioZones)
			}
		}
	}
	return NodeView{
		Node: model.Node{Name: "node-1", Labels: labelsByNode["node-1"]},
		Labels: func(node string) (map[string]string, bool) {
			labels, ok := labelsByNode[node]
			return labels, ok
		},
	}
}

func generateKeys(source *byteSource) []policy.Key {
	var keys []policy.Key
	first := source.intN(len(scenarioKeys))
	for i := range source.intN(len(scenarioKeys) + 1) {
		keys = append(keys, policy.Key(scenarioKeys[(first+i)%len(scenarioKeys)]))
	}
	if source.oneIn(3) {
		keys = append(keys, policy.AnyNode)
	}
	return keys
}

// generateSlice returns a slice. All, some or none of its endpoints have hints, and all, most or few of them are ready.
func generateSlice(source *byteSource, hintChances, readyChances int) *model.EndpointSlice {
	slice := &model.EndpointSlice{Ports: []model.SlicePort{{Name: "web", Protocol: model.TCP, Port: 8080 + uint16(source.intN(2))}}}
	for range source.intN(6) {
		endpoint := model.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(source.intN(8))}),
			Endpoint: model.Endpoint{
				Node: source.pick(scenarioNodes), Zone: source.pick(scenarioZones), Ready: true, Serving: true,
			},
		}
		if readyChances > 0 && source.oneIn(3-readyChances) {
			endpoint.Ready, endpoint.Serving, endpoint.Terminating = source.oneIn(4), !source.oneIn(4), !source.oneIn(4)
		}
		endpoint.HintZones = generateHints(source, hintChances, scenarioZones)
		endpoint.HintNodes = generateHints(source, hintChances, scenarioNodes[:4])
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}

// generateHints returns no hints if chances is 0, hints for half of the endpoints if it is 1, and for nearly all if it
// is 2.
func generateHints(source *byteSource, chances int, names []string) []string {
	if chances == 0 || chances == 1 && source.oneIn(2) || chances == 2 && source.oneIn(16) {
		return nil
	}
	hints := []string{source.pick(names)}
	if source.oneIn(4) {
		hints = append(hints, source.pick(names))
	}
	return hints
}

// randomScenarios yields the same scenarios in every run.
func randomScenarios(count int, yield func(*scenario)) {
	random := rand.NewChaCha8([32]byte{'w', 'o', 'r', 'l', 'd', 's'})
	for range count {
		bytes := make([]byte, 256)
		// ChaCha8's Read never fails.
		_, _ = random.Read(bytes)
		yield(newScenario(bytes))
	}
}
