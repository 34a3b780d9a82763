//go:build linux

package accounting

import (
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

var (
	start = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	web   = model.ObjectName{Namespace: "shop", Name: "web"}
	api   = model.ObjectName{Namespace: "shop", Name: "api"}
)

const (
	nobody  = conntrack.DestinationNAT
	replied = conntrack.DestinationNAT | conntrack.SeenReply
	zoneKey = string(policy.Zone)
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// entry is a connection that our rules led to an endpoint.
func entry(client, dialled, endpoint string) conntrack.Entry {
	return conntrack.Entry{
		Protocol: model.TCP, State: conntrack.TCPEstablished, Status: replied, ID: 1,
		Original: conntrack.Tuple{Source: at(client), Destination: at(dialled)},
		Reply:    conntrack.Tuple{Source: at(endpoint), Destination: at(client)},
	}
}

func moved(e conntrack.Entry, sent, received uint64) conntrack.Entry {
	e.Sent.Bytes, e.Received.Bytes = sent, received
	return e
}

// decision is what is decided on node-1, in zone a, of a Service whose endpoints are given by their nodes: node-1 and
// node-2 are in zone a, node-3 in zone b.
func decision(service model.ObjectName, frontend model.PortFrontend, endpoints map[string]string, keys ...policy.Key) selection.Decision {
	of := &model.Service{Name: service, Topology: policy.Topology{Keys: keys}}
	labels := map[string]map[string]string{
		"node-1": {zoneKey: "a"}, "node-2": {zoneKey: "a"}, "node-3": {zoneKey: "b"}, "node-9": {},
	}
	d := selection.Decision{
		Service: of, Owned: []model.PortFrontend{frontend},
		Viewpoint: selection.Viewpoint{
			Node:   model.Node{Name: "node-1", Labels: labels["node-1"]},
			Labels: func(node string) (map[string]string, bool) { return labels[node], labels[node] != nil },
		},
	}
	for addr, node := range endpoints {
		d.Endpoints = append(d.Endpoints, model.PortEndpoint{
			Addr: at(addr), Endpoint: model.Endpoint{Node: node, Zone: labels[node][zoneKey], Ready: true},
		})
	}
	d.Selection = selection.Select(of, false, d.Endpoints, d.Viewpoint)
	return d
}

func clusterIP(text string) model.PortFrontend {
	return model.PortFrontend{Frontend: model.Frontend{Addr: at(text).Addr(), Protocol: model.TCP, Port: at(text).Port()}}
}

func nodePort(number uint16) model.PortFrontend {
	return model.PortFrontend{
		Frontend: model.Frontend{Addr: netip.IPv4Unspecified(), Protocol: model.TCP, Port: number}, Kind: model.NodePort,
	}
}
