//go:build linux

package flows

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func TestAFlowWhoseEndpointLeftReachesAnotherWithItsNextPacket(t *testing.T) {
	forEachFamily(t, func(_ *testing.T, g *ground) {
		g.rules(g.natRule(g.service, servicePort, g.a))
		client := g.dial("udp", g.service, servicePort)
		client.wantAnswer(g.a.String(), "at first")
		g.rules(g.natRule(g.service, servicePort, g.b))
		client.wantAnswer(g.a.String(), "new rules alone")

		g.forget(1, g.flows(g.service, servicePort, g.b))
		client.wantAnswer(g.b.String(), "after it was ended")
		g.forget(0, g.flows(g.service, servicePort, g.b))
	})
}

func TestAFlowWhoseEndpointServesGoesOn(t *testing.T) {
	forEachFamily(t, func(_ *testing.T, g *ground) {
		g.rules(g.natRule(g.service, servicePort, g.a))
		client := g.dial("udp", g.service, servicePort)
		client.wantAnswer(g.a.String(), "at first")
		g.rules(g.natRule(g.service, servicePort, g.b))

		g.forget(0, g.flows(g.service, servicePort, g.a, g.b))
		client.wantAnswer(g.a.String(), "although new flows go elsewhere")
	})
}

func TestAFlowOfAServiceWithoutEndpointsIsRefusedAtItsNextPacket(t *testing.T) {
	forEachFamily(t, func(_ *testing.T, g *ground) {
		g.rules(g.natRule(g.service, servicePort, g.a))
		client := g.dial("udp", g.service, servicePort)
		client.wantAnswer(g.a.String(), "at first")
		g.rules("ADDR " + g.service.String() + " drop") // a local sender gets an error

		g.forget(1, g.flows(g.service, servicePort))
		client.wantAnswer("operation not permitted", "after the last endpoint left")
		if got := g.count(model.UDP); got != 0 {
			t.Errorf("%d UDP flows are left, want none", got)
		}
	})
}

func TestAFlowOfADeletedServiceEndsAndThenIsNotOurs(t *testing.T) {
	forEachFamily(t, func(_ *testing.T, g *ground) {
		g.rules(g.natRule(g.service, servicePort, g.a))
		client := g.dial("udp", g.service, servicePort)
		client.wantAnswer(g.a.String(), "at first")
		g.rules()

		g.forget(1, g.flows(g.service, servicePort))
		client.wantAnswer("connection refused", "after the Service was deleted")
		g.forget(0, g.flows(g.service, servicePort))
	})
}

func TestAFlowThatBeganBeforeTheServiceHadEndpointsReachesOne(t *testing.T) {
	forEachFamily(t, func(_ *testing.T, g *ground) {
		client := g.dial("udp", g.service, servicePort)
		client.wantAnswer("connection refused", "before there are rules")
		g.rules(g.natRule(g.service, servicePort, g.a))
		client.wantAnswer("connection refused", "new rules alone")

		g.forget(1, g.flows(g.service, servicePort, g.a))
		client.wantAnswer(g.a.String(), "after the black hole was ended")
	})
}

func TestFlowsToANodePortEndWithTheirEndpoint(t *testing.T) {
	forEachFamily(t, func(_ *testing.T, g *ground) {
		g.rules(g.natRule(g.ported, nodePort, g.a), g.natRule(g.portless, nodePort, g.a), g.natRule(g.ported, servicePort, g.a))
		served, unserved := g.dial("udp", g.ported, nodePort), g.dial("udp", g.portless, nodePort)
		otherPort := g.dial("udp", g.ported, servicePort)
		for _, client := range []*client{served, unserved, otherPort} {
			client.wantAnswer(g.a.String(), "at first")
		}
		g.rules(g.natRule(g.ported, nodePort, g.b), g.natRule(g.portless, nodePort, g.b), g.natRule(g.ported, servicePort, g.b))
		flows := g.flows(model.AnyAddr(model.FamilyOf(g.ported)), nodePort, g.b)

		flows[0].Endpoints = flows[0].Inside
		g.forget(0, flows)
		served.wantAnswer(g.a.String(), "a stranger that has a flow with the number")
		flows[0].Endpoints = []netip.AddrPort{g.at(g.a, endpointPort), g.at(g.b, endpointPort)}
		g.forget(2, flows)
		served.wantAnswer(g.b.String(), "the node port")
		unserved.wantAnswer(g.b.String(), "an address that serves node ports no more")
		otherPort.wantAnswer(g.a.String(), "another port")
	})
}

func TestConnectionsOfTCPStayOpen(t *testing.T) {
	forEachFamily(t, func(_ *testing.T, g *ground) {
		g.rules(g.natRule(g.service, servicePort, g.a))
		connection, client := g.dial("tcp", g.service, servicePort), g.dial("udp", g.service, servicePort)
		connection.wantAnswer(g.a.String(), "at first")
		client.wantAnswer(g.a.String(), "at first")
		g.rules(g.natRule(g.service, servicePort, g.b))

		tcp := g.flows(g.service, servicePort)[0]
		tcp.Frontend.Protocol = model.TCP
		g.forget(1, append([]selection.Flows{tcp}, g.flows(g.service, servicePort, g.b)...))
		connection.wantAnswer(g.a.String(), "the TCP connection")
		client.wantAnswer(g.b.String(), "the UDP flow")
	})
}
