package packets_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
)

// manifestDir is a cluster that reads Services and EndpointSlices from a folder, like a proxy.
type manifestDir struct {
	*refusals
	dir    string
	folder *manifests.Manifests
}

// newManifests writes the EndpointSlices of web, with one endpoint on the first node.
func newManifests(t *testing.T) *manifestDir {
	t.Helper()
	dir := t.TempDir()
	m := &manifestDir{refusals: newRefusals(t), dir: dir, folder: manifests.NewManifests(dir, convert.View{}, slog.New(slog.DiscardHandler))}
	m.write("slices.yaml", m.slices(""))
	return m
}

// write writes a file into the folder. The next load applies it.
func (m *manifestDir) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// load reads the folder and applies it to all proxies. The folder must not contain invalid objects.
func (m *manifestDir) load() {
	m.t.Helper()
	update, err := m.folder.Load()
	if err != nil || len(update.NewProblems) > 0 {
		m.t.Fatalf("load manifests: %v, rejected %v", err, update.NewProblems)
	}
	m.apply(update.Change)
}

// slices returns the EndpointSlices of web in both families, with an additional label if label is not empty.
func (m *manifestDir) slices(label string) string {
	const slice = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, namespace: default, labels: {kubernetes.io/service-name: web, %s}}
addressType: %s
ports: [{name: tcp, port: 8080, protocol: TCP}, {name: udp, port: 8080, protocol: UDP}, {name: sctp, port: 8080, protocol: SCTP}]
endpoints: [{addresses: ["%s"], nodeName: %s, conditions: {ready: true}}]
`
	return fmt.Sprintf(slice, "ipv4", label, "IPv4", m.near.IPv4, m.nodes[0].Name) +
		fmt.Sprintf(slice, "ipv6", label, "IPv6", m.near.IPv6, m.nodes[0].Name)
}

// manifest is the part of web's Service in which the tests differ.
type manifest struct {
	label, spec, ingress string
}

// These are the fields that make a Service reachable, with the addresses of web.
const (
	bothFamilies = `clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::a"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack`
	onlyIPv4     = `clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack`
	onlyIPv6     = `clusterIP: "fd00:96::a", clusterIPs: ["fd00:96::a"], ipFamilies: [IPv6], ipFamilyPolicy: SingleStack`
	headless     = `clusterIP: None, clusterIPs: [None], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack`

	balanced = `type: LoadBalancer, externalIPs: [203.0.113.10, "2001:db8:0:e::a"], `
	vip      = `{ip: 198.51.100.10, ipMode: VIP}, {ip: "2001:db8:0:b::a"}`
	proxied  = `{ip: 198.51.100.10, ipMode: Proxy}, {ip: "2001:db8:0:b::a", ipMode: Proxy}`
)

func (m manifest) String() string {
	ports := `{name: tcp, port: 80, protocol: TCP}, {name: udp, port: 80, protocol: UDP}, {name: sctp, port: 80, protocol: SCTP}`
	if strings.Contains(m.spec, "LoadBalancer") {
		ports = strings.ReplaceAll(ports, "}", ", nodePort: 30010}")
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, labels: {%s}}
spec: {%s, ports: [%s]}
status: {loadBalancer: {ingress: [%s]}}
`, m.label, m.spec, ports, m.ingress)
}

// everything is web with every kind of frontend in both families.
var everything = manifest{spec: balanced + bothFamilies, ingress: vip}

// setService writes web's Service into the folder and loads it.
func (m *manifestDir) setService(web manifest) {
	m.t.Helper()
	m.write("web.yaml", web.String())
	m.load()
}
