//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// loadTestMetrics is the metrics address of the flooded proxy.
const loadTestMetrics = "127.0.0.1:10549"

// TestConnectionLimitOnLoopback: clients that never close use half of a real proxy's connection limit, and the proxy
// keeps enough file descriptors. No connection is logged: neither forwarded ones, nor those over the limit, nor those
// to unreachable endpoints.
func TestConnectionLimitOnLoopback(t *testing.T) {
	namespace := netns.New(t)
	for _, address := range []string{"10.244.1.5/32", "fd00:244::5/128"} {
		namespace.Exec("ip", "addr", "add", address, "dev", "lo", "nodad")
	}
	startTCPEcho(t, namespace, "10.244.1.5:8080") // there is no server over IPv6
	d := startDaemon(t, namespace, splitArgs("--own-tables never --nodeport-addresses primary,localhost --metrics-bind-address "+
		loadTestMetrics+
		" --feature-gates KubeProxyNFTablesLocalhostNodePorts=true --manifests "+writeManifests(t, loopbackManifests))...)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	maxConns := min(4096, int(min(limit.Max, 1<<30)/12))
	const ipv4, ipv6 = "127.0.0.1:30080", "[::1]:30080"
	wait.Until(t, "the proxy listens", func() bool { // a test connection would be counted, too
		_, page := d.get(t, loadTestMetrics, "/metrics")
		return strings.Count(page, "\nkubeproxy_nftables_localhost_nodeport_listeners{ip_family=\"IPv4\"} 1\n") == 1 &&
			strings.Count(page, "\nkubeproxy_nftables_localhost_nodeport_listeners{ip_family=\"IPv6\"} 1\n") == 1
	})

	halfOfLimit := maxConns - maxConns/2
	open := make([]net.Conn, halfOfLimit)
	for i := range open {
		open[i] = d.dialTCP(t, ipv4)
		d.expectEcho(t, open[i])
	}
	const more = 50
	for range more {
		d.expectClosed(t, ipv4)
	}
	if got := d.countOutcomes(t); got != (connectionCounts{forwarded: halfOfLimit, overLimit: more}) {
		t.Errorf("outcomes %+v, want %d forwarded and %d over the limit", got, halfOfLimit, more)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.process.Pid))
	if err != nil || len(files) > int(limit.Max/2) {
		t.Errorf("the proxy has %d open files, more than half of the limit of %d (%v)", len(files), limit.Max, err)
	}
	t.Logf("%d connections: %d files, %s resident", halfOfLimit, len(files), d.residentMemory(t))

	for _, one := range open[:more] { // frees connections
		_ = one.Close()
	}
	wait.Until(t, "new connections are within the limit", func() bool { d.expectClosed(t, ipv6); return d.countOutcomes(t).unreachable >= 10 })
	d.expectEcho(t, d.dialTCP(t, ipv4))
	result := d.stop(t)
	if lines := strings.Count(result.stderr, "\n"); result.status != 0 || lines > 20 || strings.Contains(result.stderr, "30080") {
		t.Errorf("status, or %d log lines, some of them about connections: %+v", lines, result)
	}
}

// connectionCounts are the numbers of connections to node ports on loopback by outcome, for both families.
type connectionCounts struct{ forwarded, unreachable, overLimit int }

func (d *daemonUnderTest) countOutcomes(t *testing.T) connectionCounts {
	t.Helper()
	_, page := d.get(t, loadTestMetrics, "/metrics")
	count := func(result string) (sum int) {
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "vicinity_localhost_nodeport_connections_total{") && strings.Contains(line, `"`+result+`"`) {
				_, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
				number, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}
				sum += number
			}
		}
		return sum
	}
	return connectionCounts{count("forwarded"), count("unreachable"), count("limit_exceeded")}
}

// expectClosed connects to an address, and fails unless the proxy closes the connection.
func (d *daemonUnderTest) expectClosed(t *testing.T, address string) {
	t.Helper()
	var connection net.Conn
	var err error
	d.namespace.Do(func() { connection, err = net.DialTimeout("tcp", address, waitTimeout) })
	if err != nil {
		return // it was reset immediately
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := io.Copy(io.Discard, connection); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("a connection to %s stays open", address)
	}
}

// residentMemory returns the resident memory of the process.
func (d *daemonUnderTest) residentMemory(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "VmRSS:")
	line, _, _ = strings.Cut(line, "\n")
	return strings.TrimSpace(line)
}
