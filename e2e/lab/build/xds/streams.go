package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// streamSet describes streams that subscribe to endpoints at one server. It is the first line of the input.
type streamSet struct {
	Server      string     `json:"server"`
	Connections int        `json:"connections"`
	Streams     [][]string `json:"streams"` // the names that each subscribes to
}

// arrival records when a number of streams had received a change, the last of them at a time in nanoseconds. A change
// is identified by the port of the first endpoint.
type arrival struct {
	Port    uint32 `json:"port"`
	Streams int    `json:"streams"`
	Last    int64  `json:"last"`
}

const assignmentType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// watchAll opens the streams, writes a line once all of them have received all names, and writes the arrivals at the
// end of the input.
func watchAll(input io.Reader, output io.Writer) error {
	decoder, encoder := json.NewDecoder(input), json.NewEncoder(output)
	var c streamSet
	if err := decoder.Decode(&c); err != nil {
		return err
	}
	w := watchers{arrivals: map[uint32]*arrival{}, complete: make(chan struct{}, len(c.Streams)), failed: make(chan error, 1)}
	for i := range c.Connections {
		conn, err := grpc.NewClient(c.Server, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		for k := i; k < len(c.Streams); k += c.Connections {
			go func() {
				select {
				case w.failed <- w.watch(conn, c.Streams[k]):
				default:
				}
			}()
		}
	}
	for range c.Streams {
		select {
		case <-w.complete:
		case err := <-w.failed:
			return err
		}
	}
	if err := encoder.Encode(len(c.Streams)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, decoder.Buffered()); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, input); err != nil {
		return err
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, one := range w.arrivals {
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	return nil
}

type watchers struct {
	mutex    sync.Mutex
	arrivals map[uint32]*arrival
	complete chan struct{}
	failed   chan error
}

func (w *watchers) watch(conn *grpc.ClientConn, names []string) error {
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	request := &discovery.DiscoveryRequest{
		Node: &core.Node{Id: "streams"}, TypeUrl: assignmentType, ResourceNames: names,
	}
	known := map[string]bool{}
	for {
		if err := stream.Send(request); err != nil {
			return err
		}
		response, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive on a stream: %w", err)
		}
		request = &discovery.DiscoveryRequest{
			TypeUrl: assignmentType, ResourceNames: names, ResponseNonce: response.Nonce, VersionInfo: response.VersionInfo,
		}
		for _, resource := range response.Resources {
			var assignment endpoint.ClusterLoadAssignment
			if err := resource.UnmarshalTo(&assignment); err != nil {
				return err
			}
			w.recordArrival(assignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress().GetPortValue())
			if !known[assignment.ClusterName] {
				if known[assignment.ClusterName] = true; len(known) == len(names) {
					w.complete <- struct{}{}
				}
			}
		}
	}
}

func (w *watchers) recordArrival(port uint32) {
	now := time.Now().UnixNano()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	one := w.arrivals[port]
	if one == nil {
		one = &arrival{Port: port}
		w.arrivals[port] = one
	}
	one.Streams++
	one.Last = max(one.Last, now)
}
