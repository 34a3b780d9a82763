package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// serveCalls answers calls in a pod, with the pod's name in a header.
func serveCalls(io.Reader, io.Writer) error {
	name := os.Getenv("POD_NAME")
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := grpc.SetHeader(ctx, metadata.Pairs("server", name)); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server.Serve(listener)
}

const callsOfRound = 60

// repeatCalls is a client in a pod. It has a channel to each target in TARGETS and makes calls on all of them, round by
// round. After each round it writes a line that counts replies by target and server, and errors. For a target that does
// not begin with xds: it creates a new channel for each call.
func repeatCalls(_ io.Reader, output io.Writer) error {
	encoder := json.NewEncoder(output)
	channels := map[string]*channel{}
	for {
		round := map[string]answer{}
		for _, target := range strings.Fields(os.Getenv("TARGETS")) {
			if channels[target] == nil {
				conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					return err
				}
				channels[target] = &channel{conn: conn}
			}
			c := channels[target]
			if strings.HasPrefix(target, "xds:") {
				round[target] = c.do(command{Calls: callsOfRound})
				continue
			}
			c.reset()
			for range callsOfRound {
				conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					return err
				}
				c.conn = conn
				c.call(command{})
				if err := conn.Close(); err != nil {
					return err
				}
			}
			round[target] = c.result
		}
		if err := encoder.Encode(round); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}
