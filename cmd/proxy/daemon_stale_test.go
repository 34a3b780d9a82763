package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// tcpManifests are the manifests of a TCP Service with two endpoints, of which the first never replies.
var tcpManifests = strings.NewReplacer(
	"{name: dns, port: 53, protocol: UDP, nodePort: 30053}", "{name: http, port: 80, protocol: TCP}",
	"{name: dns, port: 5353, protocol: UDP}", "{name: http, port: 8080, protocol: TCP}",
	"    type: LoadBalancer\n    externalTrafficPolicy: Local\n    healthCheckNodePort: 32000\n", "",
).Replace(dnsManifests)

// TestTheDaemonDeletesStaleUnrepliedEntries: a client's connection attempt to an endpoint that does not reply reaches
// another endpoint after the first one was removed.
func TestTheDaemonDeletesStaleUnrepliedEntries(t *testing.T) {
	namespace := netns.New(t)
	addLink(t, namespace, "10.244.1.5/32", "10.244.1.6/32")
	namespace.Load("table inet silent {\nchain in { type filter hook input priority 0; ip daddr 10.244.1.5 tcp dport 8080 drop; }\n}\n")
	startTCPEcho(t, namespace, "10.244.1.6:8080")
	second := strings.ReplaceAll(firstEndpoint, "10.244.1.5", "10.244.1.6")
	folder := writeManifests(t, strings.ReplaceAll(tcpManifests, second, ""))
	d := startDaemon(t, namespace, "--manifests", folder)

	dialErr := make(chan error, 1)
	go func() {
		dialer, err := net.Dialer{Timeout: waitTimeout}, errors.New("the namespace was not entered")
		namespace.Do(func() {
			var conn net.Conn
			if conn, err = dialer.Dial("tcp", "10.96.0.53:80"); err == nil {
				err = conn.Close()
			}
		})
		dialErr <- err
	}()
	wait.Until(t, "an unreplied connection", func() bool {
		toEndpoint := func(flow *netlink.ConntrackFlow) bool { return flow.Reverse.SrcIP.String() == "10.244.1.5" }
		return d.countFlows(t, unix.IPPROTO_TCP, toEndpoint) == 1
	})
	text := strings.ReplaceAll(tcpManifests, firstEndpoint, "")
	if err := os.WriteFile(filepath.Join(folder, "state.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-dialErr; err != nil {
		t.Errorf("the pending connection attempt failed: %v", err)
	}
	wait.Until(t, "the deleted entry is counted", func() bool {
		_, metrics := d.get(t, "127.0.0.1:10249", "/metrics")
		return strings.Contains(metrics, `vicinity_conntrack_stale_entries_deleted_total{protocol="TCP",state="unreplied"} 1`+"\n") &&
			!strings.Contains(metrics, `vicinity_conntrack_dump_duration_seconds_count{result="complete"} 0`+"\n")
	})
	result := d.stop(t)
	if result.status != 0 || !strings.Contains(result.stderr, "deleted stale conntrack entries of unreplied connections") {
		t.Errorf("the daemon exited with %+v, want status 0, and a log line about the deleted entry", result)
	}
}
