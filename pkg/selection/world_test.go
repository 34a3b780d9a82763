package selection

import (
	"math/rand/v2"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// scenario is the complete input of a decision.
type world struct {
	service   model.Service
	port      model.ServicePort
	slices    []*model.EndpointSlice
	viewpoint NodeView
}

func (w *world) endpoints() []model.PortEndpoint {
	endpoints, _ := model.JoinSlices(&w.service, w.slices).Endpoints(w.port, model.IPv4)
	return endpoints
}

func (w *world) choose(endpoints []model.PortEndpoint) Selection {
	return Select(&w.service, w.service.IsExternal(w.port, model.IPv4), endpoints, w.viewpoint)
}

// byteSource derives choices from bytes, so that a fuzzer can steer them. It returns zeros after the last byte.
type dice struct {
	bytes []byte
}

func (d *dice) intN(limit int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	first := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(first) % limit
}

func (d *dice) oneIn(chances int) bool { return d.intN(chances) == chances-1 }

func (d *dice) pick(words []string) string { return words[d.intN(len(words))] }

// There are so few names that endpoints collide, keys repeat and endpoints share nodes.
var (
	worldNodes = []string{"node-1", "node-2", "node-3", "node-4", ""}
	worldZones = []string{"a", "b", ""}
	worldKeys  = []string{hostname, zone, rack}
)

// newScenario derives a scenario from bytes; every sequence of bytes yields one.
func newWorld(bytes []byte) *world {
	dice := &dice{bytes}
	w := &world{
		port:      model.ServicePort{Name: "web", Protocol: model.TCP, Port: 80},
		viewpoint: worldView(dice),
		service: model.Service{
			ClusterIPs:           decideAddrs("10.96.0.1", "fd00:96::1"),
			InternalTrafficLocal: dice.oneIn(4),
			ExternalTrafficLocal: dice.oneIn(4),
			Topology:             policy.Topology{Keys: worldTopology(dice)},
		},
	}
	worldFrontends(dice, w)
	hintChances, readyChances := dice.intN(3), dice.intN(3)
	for range dice.intN(4) {
		w.slices = append(w.slices, worldSlice(dice, hintChances, readyChances))
	}
	return w
}

// generateFrontends gives the port external frontends of all kinds, some or none. Those of the other family have no
// effect.
func worldFrontends(dice *dice, w *world) {
	if dice.oneIn(4) {
		w.port.NodePort = 30080
	}
	lists := [][]netip.Addr{nil, nil, decideAddrs("2001:db8::1"), decideAddrs("2001:db8::1", "192.0.2.1")}
	w.service.ExternalIPs, w.service.LoadBalancerIPs = lists[dice.intN(len(lists))], lists[dice.intN(len(lists))]
}

func worldView(dice *dice) NodeView {
	known := map[string]map[string]string{}
	for _, node := range worldNodes[:4] {
		if dice.oneIn(4) {
			continue
		}
		known[node] = map[string]string{}
		for _, key := range []string{zone, rack} {
			if !dice.oneIn(4) {
				known[node][key] = dice.pick(worldZones)
			}
		}
	}
	return NodeView{
		Node: model.Node{Name: "node-1", Labels: known["node-1"]},
		Labels: func(node string) (map[string]string, bool) {
			labels, ok := known[node]
			return labels, ok
		},
	}
}

func worldTopology(dice *dice) []policy.Key {
	var keys []policy.Key
	first := dice.intN(len(worldKeys))
	for i := range dice.intN(len(worldKeys) + 1) {
		keys = append(keys, policy.Key(worldKeys[(first+i)%len(worldKeys)]))
	}
	if dice.oneIn(3) {
		keys = append(keys, policy.AnyNode)
	}
	return keys
}

// generateSlice returns a slice. All, some or none of its endpoints have hints, and all, most or few of them are ready.
func worldSlice(dice *dice, hintChances, readyChances int) *model.EndpointSlice {
	slice := &model.EndpointSlice{Ports: []model.SlicePort{{Name: "web", Protocol: model.TCP, Port: 8080 + uint16(dice.intN(2))}}}
	for range dice.intN(6) {
		endpoint := model.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(dice.intN(8))}),
			Endpoint: model.Endpoint{
				Node: dice.pick(worldNodes), Zone: dice.pick(worldZones), Ready: true, Serving: true,
			},
		}
		if readyChances > 0 && dice.oneIn(3-readyChances) {
			endpoint.Ready, endpoint.Serving, endpoint.Terminating = dice.oneIn(4), !dice.oneIn(4), !dice.oneIn(4)
		}
		endpoint.HintZones = worldHints(dice, hintChances, worldZones)
		endpoint.HintNodes = worldHints(dice, hintChances, worldNodes[:4])
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}

// generateHints returns no hints if chances is 0, hints for half of the endpoints if it is 1, and for nearly all if it
// is 2.
func worldHints(dice *dice, chances int, places []string) []string {
	if chances == 0 || chances == 1 && dice.oneIn(2) || chances == 2 && dice.oneIn(16) {
		return nil
	}
	hints := []string{dice.pick(places)}
	if dice.oneIn(4) {
		hints = append(hints, dice.pick(places))
	}
	return hints
}

// randomScenarios yields the same scenarios in every run.
func randomWorlds(count int, yield func(*world)) {
	random := rand.NewChaCha8([32]byte{'w', 'o', 'r', 'l', 'd', 's'})
	for range count {
		bytes := make([]byte, 256)
		// ChaCha8's Read never fails.
		_, _ = random.Read(bytes)
		yield(newWorld(bytes))
	}
}
