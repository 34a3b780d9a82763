package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/xds"
)

// newXDSServer returns the component that serves xDS to clients that choose endpoints themselves; it is empty if no
// address is set.
func newXDSServer(c *common) (component, error) {
	addresses := c.options.XDSAddresses
	if len(addresses) == 0 {
		return component{}, nil
	}
	routes, err := routesFor(addresses)
	if err != nil {
		return component{}, err
	}
	server := &xds.Server{Table: xds.NewTable(c.options.DNSZone.Domain), IsLocalClient: routes.IsOnNode, Log: c.log}
	exposeXDS(c.recorder, server.Counts)
	return component{
		handler: server.Table,
		run: func(ctx context.Context) error {
			defer routes.Close()
			return server.Run(ctx, addresses)
		},
		summary: func(s *status.Summary) { s.XDS = server.Status(addresses) },
	}, nil
}

// routesFor returns the routes that distinguish clients on this node from others.
func routesFor(addresses []string) (*interfaces.Routes, error) {
	routes, err := interfaces.OpenRoutes()
	if err != nil {
		return nil, err
	}
	if err := checkClientsDistinguishable(routes, addresses); err != nil {
		routes.Close()
		return nil, err
	}
	return routes, nil
}

// defaultRouteProbes are addresses that no network has (RFC 5737 and 3849): they are reached by the default route.
var defaultRouteProbes = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// checkClientsDistinguishable returns an error if routes cannot distinguish this node's clients from others: the
// default route must have a gateway. A Unix socket needs none: only processes on the node can reach it.
func checkClientsDistinguishable(routes *interfaces.Routes, addresses []string) error {
	isSocket := func(address string) bool { return strings.HasPrefix(address, xds.SocketPrefix) }
	if !slices.ContainsFunc(addresses, func(address string) bool { return !isSocket(address) }) {
		return nil
	}
	for _, addr := range defaultRouteProbes {
		isLocal, err := routes.IsOnNode(addr)
		if err != nil {
			return fmt.Errorf("--xds-bind-address: %w", err)
		}
		if isLocal {
			return errors.New("--xds-bind-address: this node's default route has no gateway, so clients on the node cannot be " +
				"distinguished from others; use only a Unix socket, such as unix:///run/vicinity/xds.sock")
		}
	}
	return nil
}

// exposeXDS exports the counts as metrics.
func exposeXDS(recorder *metrics.Recorder, counts func() xds.Counts) {
	recorder.CollectFrom(metrics.XDSStreams, func(add metrics.Add) { add(float64(counts().Streams)) })
	recorder.CollectFrom(metrics.XDSNames, func(add metrics.Add) { add(float64(counts().Names)) })
	recorder.CollectFrom(metrics.XDSResponses, func(add metrics.Add) {
		current := counts()
		for kind, name := range xds.TypeNames {
			add(float64(current.Sent[kind]), name, metrics.XDSSent)
			add(float64(current.NACKed[kind]), name, metrics.XDSNACKed)
		}
	})
	recorder.CollectFrom(metrics.XDSRejected, func(add metrics.Add) {
		current := counts()
		for _, reason := range xds.RejectReasons {
			add(float64(current.Rejected[reason]), string(reason))
		}
	})
}
