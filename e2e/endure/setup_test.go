// Package endure_test verifies that the proxy keeps forwarding when it is killed, when another process modifies its
// tables, and when a Service moves between it and kube-proxy: the real program, a real kernel, real connections. It
// needs root, nft and Go.
package endure_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// The port that clients dial, and the port on which pods serve.
const (
	servicePort = 80
	podPort     = 8080
)

// waitTimeout is the timeout of anything that is immediate on an idle machine.
const waitTimeout = 30 * time.Second

// setup is a node with pods, a machine outside, and the manifests that the proxy on the node reads.
type setup struct {
	t         *testing.T
	node      *fabric.Node
	servers   map[string]*fabric.Pod // by name: a to d
	clients   []*fabric.Namespace    // pods
	outside   *fabric.Namespace
	manifests string
	program   string // the proxy's path
	// ownTransactions counts the transactions of the test itself.
	ownTransactions int
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	network := fabrictest.New(t)
	s := &setup{t: t, servers: map[string]*fabric.Pod{}, manifests: t.TempDir(), program: site.Program(t, "proxy")}
	var err error
	s.node, err = network.AddNode("node-1")
	must.Succeed(t, err)
	for _, name := range []string{"a", "b", "c", "d"} {
		s.servers[name], err = s.node.AddPod(name)
		must.Succeed(t, err)
		_, err = s.servers[name].Serve(podPort)
		must.Succeed(t, err)
	}
	for _, name := range []string{"client-1", "client-2", "client-3"} {
		client, err := s.node.AddPod(name)
		must.Succeed(t, err)
		s.clients = append(s.clients, client.Namespace)
	}
	host, err := network.AddHost("outside", s.node)
	must.Succeed(t, err)
	s.outside = host.Namespace
	s.replace("node.yaml", fmt.Sprintf(nodeManifest, s.node.Name, s.node.IPv4, s.node.IPv6))
	return s
}

// run runs a program on the node and returns what it printed on standard output.
func (s *setup) run(name string, args ...string) (output string, err error) {
	return s.node.Run(exec.Command(name, args...))
}

// sourceFlags returns the arguments for the source of the tables.
func (s *setup) sourceFlags() []string {
	return []string{"--manifests", s.manifests, "--cluster-cidr", fabric.PodsIPv4.String() + "," + fabric.PodsIPv6.String()}
}

// replace writes a file into the folder of manifests, atomically.
func (s *setup) replace(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.manifests, name)
	must.Succeed(s.t, os.WriteFile(path+".new", []byte(text), 0o600))
	must.Succeed(s.t, os.Rename(path+".new", path))
}

func (s *setup) remove(name string) {
	s.t.Helper()
	must.Succeed(s.t, os.Remove(filepath.Join(s.manifests, name)))
}

// app is a Service. Its number is the last byte of its addresses, and the offset of its node ports.
type app struct {
	name     string
	number   int
	affinity string
}

var (
	web    = app{name: "web", number: 10, affinity: "None"}
	sticky = app{name: "sticky", number: 11, affinity: "ClientIP"}
)

func (a app) ipv4() netip.AddrPort { return a.address(fmt.Sprintf("10.96.0.%d", a.number)) }
func (a app) ipv6() netip.AddrPort { return a.address(fmt.Sprintf("fd00:96::%x", a.number)) }

func (a app) address(addr string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), servicePort)
}

func (a app) nodePort(addr netip.Addr) netip.AddrPort {
	return netip.AddrPortFrom(addr, uint16(30000+a.number))
}

func (a app) file() string { return a.name + ".yaml" }

// write makes the named servers the endpoints of a Service.
func (s *setup) write(a app, endpoints ...string) {
	s.t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, serviceManifest, a.name, a.affinity, a.ipv4().Addr(), a.ipv6().Addr(), servicePort, 30000+a.number)
	for _, family := range model.Families {
		fmt.Fprintf(&text, sliceManifest, a.name, strings.ToLower(family.String()), family, podPort)
		for _, name := range endpoints {
			addr := s.servers[name].IPv4
			if family == model.IPv6 {
				addr = s.servers[name].IPv6
			}
			fmt.Fprintf(&text, endpointManifest, addr, s.node.Name)
		}
	}
	s.replace(a.file(), text.String())
}

const (
	nodeManifest = `apiVersion: v1
kind: Node
metadata: {name: %s}
status:
  addresses:
  - {type: InternalIP, address: %s}
  - {type: InternalIP, address: "%s"}
`
	serviceManifest = `apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  type: NodePort
  sessionAffinity: %[2]s
  clusterIP: %[3]s
  clusterIPs: [%[3]s, "%[4]s"]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {name: tcp, protocol: TCP, port: %[5]d, nodePort: %[6]d}
  - {name: udp, protocol: UDP, port: %[5]d, nodePort: %[6]d}
`
	sliceManifest = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports:
- {name: tcp, protocol: TCP, port: %[4]d}
- {name: udp, protocol: UDP, port: %[4]d}
endpoints:
`
	endpointManifest = `- {addresses: ["%s"], nodeName: %s, conditions: {ready: true, serving: true, terminating: false}}
`
)
