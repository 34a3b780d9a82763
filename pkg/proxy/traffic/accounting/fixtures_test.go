//go:build linux

package accounting

import (
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
)

var (
	start = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	web   = model.ObjectName{Namespace: "shop", Name: "web"}
	api   = model.ObjectName{Namespace: "shop", Name: "api"}
)

const (
	unreplied = conntrack.DestinationNAT
	replied   = conntrack.DestinationNAT | conntrack.SeenReply
)

func addrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// entry returns a connection that our rules sent to an endpoint.
func entry(client, origDst, endpoint string) conntrack.Entry {
	return conntrack.Entry{
		Protocol: model.TCP, State: conntrack.TCPEstablished, Status: replied, ID: 1, IsCounted: true,
		Original: conntrack.Tuple{Source: addrPort(client), Destination: addrPort(origDst)},
		Reply:    conntrack.Tuple{Source: addrPort(endpoint), Destination: addrPort(client)},
	}
}

func withTraffic(e conntrack.Entry, sent, received uint64) conntrack.Entry {
	e.Sent.Bytes, e.Received.Bytes = sent, received
	return e
}
