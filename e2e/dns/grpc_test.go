package dns_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// grpcTarget makes this test binary a gRPC client of the named target.
const grpcTarget = "VICINITY_TEST_GRPC_TARGET"

func TestMain(m *testing.M) {
	target := os.Getenv(grpcTarget)
	if target == "" {
		os.Exit(m.Run())
	}
	counts, err := callMany(target)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(counts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const calls = 60

// callMany calls the servers of a name in rotation, and counts the calls by server address. It starts to count when the
// client is most likely connected to all of them.
func callMany(target string) (map[string]int, error) {
	client, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	counts := map[string]int{}
	for call := range 2 * calls {
		var server peer.Peer
		if _, err := grpc_health_v1.NewHealthClient(client).Check(ctx, &grpc_health_v1.HealthCheckRequest{},
			grpc.Peer(&server), grpc.WaitForReady(true)); err != nil {
			return nil, err
		}
		if call >= calls {
			counts[server.Addr.String()]++
		}
		time.Sleep(time.Millisecond)
	}
	return counts, nil
}

// TestGRPCBalancesOverTheZone checks that a client with the target dns:/// and the policy round_robin balances over the
// servers of its own zone, and over those of another zone when its own has none.
func TestGRPCBalancesOverTheZone(t *testing.T) {
	s := newSetup(t)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	t.Cleanup(server.Stop)
	const port = 8080 + 1 // headless.slices adds 8000
	grpcPort := corev1.ServicePort{Name: "grpc", Protocol: corev1.ProtocolTCP, Port: 81}
	near := headless{"grpc", "topology.kubernetes.io/zone, *", []corev1.ServicePort{grpcPort}, nil}
	var addrs []string
	for i, zone := range []string{"a", "a", "b"} {
		pod, err := s.node.AddPod(fmt.Sprintf("server-%d", i))
		must.Succeed(t, err)
		addr := netip.AddrPortFrom(pod.IPv4, port)
		listener, err := pod.Listen("tcp", addr.String())
		must.Succeed(t, err)
		go func() { _ = server.Serve(listener) }() // until it is stopped
		near.endpoints = append(near.endpoints, pod.IPv4.String()+" "+zone)
		addrs = append(addrs, addr.String())
	}
	s.create(near)
	wait.Equal(t, "calls by server", fmt.Sprint(map[string]int{addrs[0]: calls / 2, addrs[1]: calls / 2}), func() string {
		return s.grpcCalls(near)
	})
	near.endpoints = near.endpoints[2:]
	s.updateEndpoints(near)
	wait.Equal(t, "calls by server, with none in the zone", fmt.Sprint(map[string]int{addrs[2]: calls}), func() string {
		return s.grpcCalls(near)
	})
}

// grpcCalls runs a client on the node, with its own resolver file.
func (s *setup) grpcCalls(h headless) string {
	self, err := os.Executable()
	must.Succeed(s.t, err)
	cmd := s.withResolver(self)
	cmd.Env = append(os.Environ(), "GODEBUG=netdns=go", grpcTarget+"=dns:///"+net.JoinHostPort(h.name, "8081"))
	output, err := s.node.Run(cmd)
	if err != nil {
		return err.Error()
	}
	var counts map[string]int
	must.Succeed(s.t, json.Unmarshal([]byte(output), &counts))
	return fmt.Sprint(counts)
}
