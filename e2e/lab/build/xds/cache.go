package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// update has a name's new endpoints: addresses, each with a port. An update without a name has the socket to listen on,
// once all updates before it are applied.
type update struct {
	Name   string   `json:"name"`
	Addrs  []string `json:"addrs"`
	Port   uint32   `json:"port"`
	Listen string   `json:"listen"`
}

// serveCache is go-control-plane's own server with a linear cache, which sends each stream only the resources that it
// subscribed to.
func serveCache(input io.Reader, _ io.Writer) error {
	linear := cache.NewLinearCache(assignmentType)
	decoder := json.NewDecoder(input)
	for {
		var next update
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if next.Name != "" {
			if err := linear.UpdateResource(next.Name, assignmentOf(next)); err != nil {
				return err
			}
			continue
		}
		listener, err := net.Listen("unix", strings.TrimPrefix(next.Listen, "unix://"))
		if err != nil {
			return err
		}
		serving := grpc.NewServer()
		discovery.RegisterAggregatedDiscoveryServiceServer(serving, server.NewServer(context.Background(), linear, nil))
		go func() { _ = serving.Serve(listener) }() // until the process ends
	}
}

func assignmentOf(next update) types.Resource {
	locality := &endpoint.LocalityLbEndpoints{
		Locality: &core.Locality{Zone: "a"}, LoadBalancingWeight: wrapperspb.UInt32(uint32(len(next.Addrs))),
	}
	for _, addr := range next.Addrs {
		socket := &core.SocketAddress{Address: addr, PortSpecifier: &core.SocketAddress_PortValue{PortValue: next.Port}}
		locality.LbEndpoints = append(locality.LbEndpoints, &endpoint.LbEndpoint{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
				Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: socket}},
			}},
		})
	}
	return &endpoint.ClusterLoadAssignment{ClusterName: next.Name, Endpoints: []*endpoint.LocalityLbEndpoints{locality}}
}
