//go:build linux

package main

import (
	"encoding/json"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/flows"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// zonedManifests has a Service with topology keys to fill in, and an endpoint on node-b, in another zone than node-a.
const zonedManifests = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata:
    {name: web, namespace: shop, annotations: {vicinity.dev/topology-keys: "ANNOTATION"}}
  spec: {type: NodePort, clusterIP: 10.96.0.80, ports: [{name: http, port: 80, protocol: TCP, nodePort: 30080}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-4, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: [10.244.2.5], nodeName: node-b, zone: zone-b, conditions: {ready: true}}]
- {apiVersion: v1, kind: Node, metadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-a}}}
- {apiVersion: v1, kind: Node, metadata: {name: node-b, labels: {topology.kubernetes.io/zone: zone-b}}}
`

// proxyIn runs a command in a namespace.
func proxyIn(t *testing.T, namespace *netns.Namespace, args ...string) outcome {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := namespace.Command(program, args...)
	command.Env = append(os.Environ(), asProxy+"=1")
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	namespace.Do(func() { err = command.Run() })
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// startZonedNode returns a namespace with the endpoint on loopback, and the proxy that runs in it.
func startZonedNode(t *testing.T, args ...string) (*netns.Namespace, *daemonUnderTest) {
	t.Helper()
	namespace := netns.New(t)
	for _, address := range []string{"10.244.2.5/32", "10.244.1.9/32"} {
		namespace.Exec("ip", "addr", "add", address, "dev", "lo")
	}
	namespace.Exec("ip", "route", "add", "10.96.0.0/16", "dev", "lo", "src", "10.244.1.9")
	startTCPEcho(t, namespace, "10.244.2.5:8080")
	folder := writeManifests(t, strings.Replace(zonedManifests, "ANNOTATION", "topology.kubernetes.io/zone, *", 1))
	args = append([]string{"--manifests", folder, "--own-tables", "never", "--metrics-bind-address", "127.0.0.1:10549"}, args...)
	return namespace, startDaemon(t, namespace, args...)
}

// openConnection opens a connection to the Service and waits for a reply.
func openConnection(t *testing.T, namespace *netns.Namespace) net.Conn {
	t.Helper()
	var connection net.Conn
	var err error
	namespace.Do(func() { connection, err = net.DialTimeout("tcp", "10.96.0.80:80", 5*time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	answer := make([]byte, 4)
	if _, err := connection.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Read(answer); err != nil {
		t.Fatal(err)
	}
	return connection
}

func TestFlowsReportsWhereConnectionsGo(t *testing.T) {
	const at = "--metrics-bind-address=127.0.0.1:10549"
	namespace, daemon := startZonedNode(t)
	if got := proxyIn(t, namespace, "flows", at); got.status != 0 || got.stdout != "Node node-a has no connection to a Service.\n" {
		t.Errorf("without a connection: %+v", got)
	}
	openConnection(t, namespace)
	openConnection(t, namespace)
	_ = openConnection(t, namespace).Close()
	namespace.NFT("add table ip silence; add chain ip silence input { type filter hook input priority 0; }; " +
		"add rule ip silence input tcp dport 8080 tcp flags syn drop")
	var err error
	namespace.Do(func() { _, err = net.DialTimeout("tcp", "10.96.0.80:80", 50*time.Millisecond) })
	if err == nil {
		t.Fatal("a connection was established although its packets are dropped")
	}
	for _, args := range [][]string{nil, {"shop/web"}, {"-n", "shop"}} {
		got := proxyIn(t, namespace, append([]string{"flows", at, "-o", "json"}, args...)...)
		var report flows.Report
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			t.Fatalf("error %v, output %+v", err, got)
		}
		if got.status != 0 || len(report.Services) != 1 || len(report.Services[0].Endpoints) != 1 {
			t.Fatalf("%q: %+v", args, got)
		}
		service, endpoint := report.Services[0], report.Services[0].Endpoints[0]
		endpoint.Sent, endpoint.Received = 0, 0
		want := flows.Endpoint{
			Endpoint: "10.244.2.5:8080", Protocol: "TCP", Node: "node-b", Zone: "zone-b", Locality: "other_zone", Tier: "*",
			Counts: flows.Counts{Established: 2, Unreplied: 1, Ending: 1},
		}
		if endpoint != want || service.Service != "shop/web" || service.ByLocality["other_zone"] != 3 {
			t.Errorf("%q: %+v", args, report)
		}
	}
	text := proxyIn(t, namespace, "flows", at).stdout
	if !strings.Contains(text, "SERVICE    UNANSWERED   OPEN") || !strings.Contains(text, "shop/web   1            2 ") {
		t.Errorf("the text is\n%s", text)
	}
	text = proxyIn(t, namespace, "flows", "shop/web", at).stdout
	if !strings.Contains(text, "10.244.2.5:8080/TCP   node-b   zone-b   other_zone   *      1            2      1        -      -\n") {
		t.Errorf("the text of a Service is\n%s", text)
	}
	if got := proxyIn(t, namespace, "flows", "shop/wbe", at); got.status != 1 || !strings.Contains(got.stderr, "shop/web") {
		t.Errorf("for a missing Service: %+v", got)
	}
	daemon.stop(t)
}

// TestTheDaemonCountsTraffic: its metrics count ended connections by destination and tier, under the Service's name.
func TestTheDaemonCountsTraffic(t *testing.T) {
	namespace, daemon := startZonedNode(t, "--traffic-accounting", "services")
	page := func() string {
		_, body := daemon.get(t, "127.0.0.1:10549", "/metrics")
		return body
	}
	namespace.Exec("sh", "-c", "echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait; "+
		"echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close")
	// The daemon starts to receive events soon after the first sync, and may not report connections that started
	// before.
	listens := func() bool {
		_ = openConnection(t, namespace).Close()
		return strings.Contains(page(), "vicinity_connections_total{")
	}
	wait.Until(t, "a connection is counted", listens)
	before := seriesValue(t, page(), `vicinity_connections_total{locality="other_zone",outcome="replied",tier="*"}`)
	for range 3 {
		_ = openConnection(t, namespace).Close()
	}
	wait.Until(t, "three more connections are counted", func() bool {
		return seriesValue(t, page(), `vicinity_connections_total{locality="other_zone",outcome="replied",tier="*"}`) >= before+3
	})
	text := page()
	all := seriesValue(t, text, `vicinity_connections_total{locality="other_zone",outcome="replied",tier="*"}`)
	ofService := seriesValue(t, text,
		`vicinity_service_connections_total{locality="other_zone",namespace="shop",outcome="replied",service="web",tier="*"}`)
	if ofService < all || ofService > all+5 { // the page is not a consistent snapshot
		t.Errorf("%v connections in total, but %v of the only Service", all, ofService)
	}
	for _, line := range []string{
		`vicinity_connections_total{locality="other_zone",outcome="refused",tier="*"} 0`,
		`vicinity_connections_total{locality="other_zone",outcome="unreplied",tier="*"} 0`,
		`vicinity_accounting_not_counted_total{reason="lost_end"} 0`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	for _, series := range []string{
		`vicinity_traffic_bytes_total{direction="sent",locality="other_zone",tier="*"} `,
		`vicinity_service_traffic_bytes_total{direction="received",locality="other_zone",namespace="shop",service="web",tier="*"} `,
		`vicinity_zone_traffic_bytes_total{destination_zone="zone-b",direction="sent",source_zone="zone-a"} `,
	} {
		if text := page(); !strings.Contains(text, "\n"+series) || strings.Contains(text, series+"0\n") {
			t.Errorf("the metrics lack %s, or it is 0", series)
		}
	}
	if result := daemon.stop(t); result.status != 0 {
		t.Errorf("%+v", result)
	}
}

// seriesValue returns the value of a series.
func seriesValue(t *testing.T, page, series string) float64 {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n"+series+" ")
	text, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(text, 64)
	if !found || err != nil {
		t.Fatalf("%s is %q: %v", series, text, err)
	}
	return value
}

// TestWithoutAccountingNoSysctlIsWritten also checks that there are no metrics of connections.
func TestWithoutAccountingNoSysctlIsWritten(t *testing.T) {
	namespace, daemon := startZonedNode(t)
	if got := strings.TrimSpace(namespace.Exec("cat", "/proc/sys/net/netfilter/nf_conntrack_acct")); got != "0" {
		t.Errorf("nf_conntrack_acct is %s", got)
	}
	if _, body := daemon.get(t, "127.0.0.1:10549", "/metrics"); strings.Contains(body, "vicinity_connections_total") {
		t.Error("connections are counted")
	}
	daemon.stop(t)
}
