package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/xds"
)

// mesh tells clients that choose endpoints themselves, by xDS.
type mesh struct {
	table     *xds.Table
	server    xds.Server
	routes    *interfaces.Routes
	addresses []string
}

// newMesh answers xDS, if that is asked for.
func newMesh(c *common) (part, error) {
	if len(c.options.XDSAddresses) == 0 {
		return part{}, nil
	}
	m, err := openMesh(c)
	if err != nil {
		return part{}, err
	}
	return part{reader: m.table, run: m.run, summary: func(s *status.Summary) { s.XDS = m.summary() }}, nil
}

// openMesh opens what tells the clients on this node from others. Its run closes that.
func openMesh(c *common) (*mesh, error) {
	routes, err := interfaces.OpenRoutes()
	if err != nil {
		return nil, err
	}
	m := &mesh{table: xds.NewTable(c.options.DNSZone.Domain), routes: routes, addresses: c.options.XDSAddresses}
	m.server = xds.Server{Table: m.table, IsOfNode: routes.IsOnNode, Observer: meshObserver{c.recorder}, Log: c.log}
	if err := m.canTellClients(); err != nil {
		routes.Close()
		return nil, err
	}
	return m, nil
}

// anywhere are addresses that no network has (RFC 5737 and 3849): they are reached by the default route.
var anywhere = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// canTellClients requires that routes distinguish this node's clients from others: the default route must have a
// gateway. A socket needs none: only processes on the node can reach it.
func (m *mesh) canTellClients() error {
	isSocket := func(address string) bool { return strings.HasPrefix(address, xds.SocketPrefix) }
	if !slices.ContainsFunc(m.addresses, func(address string) bool { return !isSocket(address) }) {
		return nil
	}
	for _, addr := range anywhere {
		everybody, err := m.routes.IsOnNode(addr)
		if err != nil {
			return fmt.Errorf("--xds-bind-address: %w", err)
		}
		if everybody {
			return errors.New("--xds-bind-address: this node's default route has no gateway, so nothing distinguishes clients on the node " +
				"from all others; give the path of a socket alone, as in unix:///run/vicinity/xds.sock")
		}
	}
	return nil
}

// run answers until ctx ends.
func (m *mesh) run(ctx context.Context) error {
	defer m.routes.Close()
	return m.server.Run(ctx, m.addresses)
}

// summary is what the page /summary says about xDS.
func (m *mesh) summary() *status.XDS {
	now := m.server.Status()
	s := &status.XDS{
		Clients: []status.XDSClient{}, Refused: map[string]int{}, UnknownNames: now.Unknown, RejectedResponses: now.Rejected,
	}
	for _, address := range m.addresses {
		s.Addresses = append(s.Addresses, status.XDSAddress{Address: address, Error: now.Addresses[address]})
	}
	for _, client := range now.Clients {
		address := ""
		if client.Addr.IsValid() {
			address = client.Addr.String()
		}
		s.Streams, s.Names = s.Streams+client.Streams, s.Names+client.Names
		s.Clients = append(s.Clients, status.XDSClient{
			Address: address, Streams: client.Streams, Names: client.Names, UnreadBytes: client.Unread,
		})
	}
	for why, count := range now.Refused {
		s.Refused[string(why)] = count
	}
	return s
}

// meshObserver counts what the server does.
type meshObserver struct{ recorder *metrics.Recorder }

// Clients is called when streams or names come or go.
func (o meshObserver) Clients(streams, names int) {
	o.recorder.Set(metrics.XDSStreams, streams)
	o.recorder.Set(metrics.XDSNames, names)
}

// Answered is called for each response.
func (o meshObserver) Answered(kind string) {
	o.recorder.Add(metrics.XDSResponses, 1, kind, metrics.XDSSent)
}

// Rejected is called for each response that a client rejected.
func (o meshObserver) Rejected(kind string) {
	o.recorder.Add(metrics.XDSResponses, 1, kind, metrics.XDSRejected)
}

// Unknown is called for each name that means no Service port.
func (o meshObserver) Unknown() { o.recorder.Add(metrics.XDSRefused, 1, metrics.XDSUnknownName) }

// Refused is called for each client that is not served.
func (o meshObserver) Refused(why xds.Refusal) { o.recorder.Add(metrics.XDSRefused, 1, string(why)) }
