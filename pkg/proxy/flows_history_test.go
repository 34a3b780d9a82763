package proxy_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// openFlow is a UDP flow whose client never stops sending.
type openFlow struct {
	frontend model.Frontend
	place    selection.Place // where the client is
	answerer netip.AddrPort  // the invalid one: it is not translated
	// unserved: it was dialled at an address that does not serve node ports, and another proxy's table translated it
	// there.
	unserved bool
}

// openFlows is conntrack in memory.
type openFlows struct {
	open  map[openFlow]bool
	ended int
}

func (o *openFlows) Note(flows []selection.Flows, _ selection.Scope) {
	for flow := range o.open {
		at := slices.IndexFunc(flows, func(of selection.Flows) bool { return of.Frontend == flow.frontend })
		if at >= 0 && (flow.unserved && slices.Contains(flows[at].Endpoints, flow.answerer) || !flow.unserved && isStale(flow, flows[at])) {
			delete(o.open, flow)
			o.ended++
		}
	}
}

func isStale(flow openFlow, of selection.Flows) bool {
	if !flow.answerer.IsValid() { // another program translates it, or it waits for an endpoint
		return len(of.Inside)+len(of.Outside) > 0
	}
	return !slices.Contains(mayAnswer(of, flow.place), flow.answerer)
}

func mayAnswer(of selection.Flows, place selection.Place) []netip.AddrPort {
	if place == selection.Inside {
		return of.Inside
	}
	return of.Outside
}

// begin opens every flow that may begin now: to each endpoint that may answer, untranslated ones where there is no
// frontend, and, to each endpoint of a node port, one that another proxy translates.
func (o *openFlows) begin(permitted map[model.Frontend]selection.Flows) {
	for _, place := range []selection.Place{selection.Inside, selection.Outside} {
		for _, of := range permitted {
			for _, answerer := range mayAnswer(of, place) {
				o.open[openFlow{frontend: of.Frontend, place: place, answerer: answerer}] = true
			}
			for _, answerer := range of.Endpoints {
				o.open[openFlow{frontend: of.Frontend, place: place, answerer: answerer, unserved: true}] = true
			}
		}
		for _, frontend := range everyFrontend {
			if _, exists := permitted[frontend]; !exists {
				o.open[openFlow{frontend: frontend, place: place}] = true
			}
		}
	}
}

// everyFrontend is a few of the UDP frontends that a history may make.
var everyFrontend = []model.Frontend{
	{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: model.UDP, Port: 53},
	{Addr: netip.MustParseAddr("192.0.2.1"), Protocol: model.UDP, Port: 53},
	{Addr: netip.MustParseAddr("2001:db8::1"), Protocol: model.UDP, Port: 53},
	{Addr: netip.IPv4Unspecified(), Protocol: model.UDP, Port: 30080},
}

// permittedIn decides afresh who may answer which UDP frontend.
func permittedIn(s *story) map[model.Frontend]selection.Flows {
	cluster := model.NewCluster(self)
	cluster.NodePorts = s.config.NodePorts // these decide which Service has an external IP that is the node's own address
	cluster.Apply(s.everything)
	permitted := map[model.Frontend]selection.Flows{}
	for _, name := range cluster.ServiceNames() {
		for _, decision := range selection.NewPlanner(cluster).Decide(name, s.config.Families) {
			if decision.Port.Protocol != model.UDP {
				continue
			}
			for _, of := range decision.Flows() {
				permitted[of.Frontend] = of
			}
		}
	}
	return permitted
}

// TestNoHistoryLeavesAStaleFlow: whatever happened, no flow outlives the right of its endpoint to answer it, and none
// stays untranslated once an endpoint may answer. Proxies restart meanwhile.
func TestNoHistoryLeavesAStaleFlow(t *testing.T) {
	ended := 0
	for seed := range uint64(18) {
		kernel := &memoryKernel{}
		flows := &openFlows{open: map[openFlow]bool{}}
		s := newStory(seed, kernel, kernel, flows)
		for range 25 {
			s.goOn()
			if s.changes.random.IntN(10) == 0 {
				s.restart()
				// The tables say where new flows go, but not which other endpoints there are.
				maps.DeleteFunc(flows.open, func(flow openFlow, _ bool) bool { return flow.unserved })
			}
			mustSync(t, s.running)
			permitted := permittedIn(s)
			for flow := range flows.open {
				of := permitted[flow.frontend]
				if flow.unserved && !slices.Contains(of.Endpoints, flow.answerer) {
					t.Fatalf("seed %d: a flow to %s that another proxy translated is still answered by %s; endpoints: %s",
						seed, flow.frontend, flow.answerer, addrsText(of.Endpoints))
				}
				if !flow.unserved && isStale(flow, of) {
					t.Fatalf("seed %d: a flow from %v to %s is still answered by %s; permitted: %s",
						seed, flow.place, flow.frontend, flow.answerer, flowsText(of))
				}
			}
			flows.begin(permitted)
		}
		ended += flows.ended
	}
	if ended == 0 {
		t.Error("no flow was ended: nothing was tested")
	}
}
