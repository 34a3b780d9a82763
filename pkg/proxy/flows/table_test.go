//go:build linux

package flows

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func (s site) at(addr netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(addr, port) }

func TestOfManyFlowsOnlyTheStaleEnd(t *testing.T) {
	forEachFamily(t, func(t *testing.T, g *ground) {
		service, other := g.at(g.service, servicePort), g.at(g.service, 5353)
		a, b := g.at(g.a, endpointPort), g.at(g.b, endpointPort)
		g.insert(model.UDP, g.elsewhere, 1000, 10_000, other, a) // another port of the Service
		g.insert(model.UDP, g.elsewhere, 20_000, 300, service, b)
		g.insert(model.UDP, g.elsewhere, 30_000, 500, service, a)

		g.forget(500, g.flows(g.service, servicePort, g.b))
		if got := g.count(model.UDP); got != 10_300 {
			t.Errorf("%d flows are left, want the 10000 of others and the 300 whose endpoint serves", got)
		}
	})
}

func TestEntriesOfTCPAndSCTPStay(t *testing.T) {
	forEachFamily(t, func(t *testing.T, g *ground) {
		service, a := g.at(g.service, servicePort), g.at(g.a, endpointPort)
		protocols := []model.Protocol{model.TCP, model.UDP, model.SCTP}
		var flows []selection.Flows
		for i, protocol := range protocols {
			g.insert(protocol, g.elsewhere, 1000, 10*(i+1), service, a)
			of := g.flows(g.service, servicePort)[0]
			of.Frontend.Protocol = protocol
			flows = append(flows, of)
		}

		g.forget(20, flows)
		for i, want := range []int{10, 0, 30} {
			if got := g.count(protocols[i]); got != want {
				t.Errorf("%d entries of %s are left, want %d", got, protocols[i], want)
			}
		}
	})
}

func TestClientsInsideAndOutsideKeepTheirOwnEndpoints(t *testing.T) {
	forEachFamily(t, func(t *testing.T, g *ground) {
		service, a, b := g.at(g.service, servicePort), g.at(g.a, endpointPort), g.at(g.b, endpointPort)
		for i, endpoint := range []netip.AddrPort{a, b} {
			g.insert(model.UDP, g.portless, 1000*(i+1), 1, service, endpoint)   // this node
			g.insert(model.UDP, g.b.Next(), 1000*(i+1), 10, service, endpoint)  // a pod
			g.insert(model.UDP, g.elsewhere, 1000*(i+1), 50, service, endpoint) // a machine outside
		}
		local := g.flows(g.service, servicePort, g.a, g.b)
		local[0].Outside = []netip.AddrPort{a} // as with externalTrafficPolicy: Local
		scope := g.scope()

		if ended, err := g.tryForget(local, scope); ended != 0 || err != nil {
			t.Errorf("as long as pods are not recognized: ended %d, %v; want none", ended, err)
		}
		scope.Pods = clusterScope.Pods
		if ended, err := g.tryForget(local, scope); ended != 50 || err != nil {
			t.Errorf("ended %d, %v; want the 50 of the machine outside to the endpoint of another node", ended, err)
		}
		if got := g.count(model.UDP); got != 72 {
			t.Errorf("%d flows are left, want 72", got)
		}
	})
}

func TestFlowsOfOthersThatBeginMeanwhileStay(t *testing.T) {
	forEachFamily(t, func(t *testing.T, g *ground) {
		service, other := g.at(g.service, servicePort), g.at(g.service, 5353)
		a, b := g.at(g.a, endpointPort), g.at(g.b, endpointPort)
		g.insert(model.UDP, g.elsewhere, 1000, 5000, service, a)
		begun := make(chan error)
		go func() {
			defer close(begun)
			for port := uint16(10_000); port < 13_000; port++ {
				dialled, answerer := service, b
				if port%2 == 0 {
					dialled, answerer = other, a
				}
				if err := g.tryInsert(model.UDP, g.at(g.elsewhere, port), dialled, answerer); err != nil {
					begun <- err
				}
			}
		}()

		ended, rounds := 0, 0
		for running := true; running; rounds++ {
			n, err := g.tryForget(g.flows(g.service, servicePort, g.b), g.scope())
			if ended += n; err != nil {
				t.Fatalf("round %d: %v", rounds, err)
			}
			select {
			case err, ok := <-begun:
				if running = ok; ok {
					t.Errorf("beginning a flow: %v", err)
				}
			default:
			}
		}
		if ended != 5000 {
			t.Errorf("%d flows were ended in %d rounds, want 5000", ended, rounds)
		}
		if got := g.count(model.UDP); got != 3000 {
			t.Errorf("%d flows are left, want the 3000 that began meanwhile", got)
		}
	})
}
