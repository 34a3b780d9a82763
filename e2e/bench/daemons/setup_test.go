package daemons_test

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// setup is a network with a control plane, a node for each proxy, and a node with endpoints.
type setup struct {
	dir      string
	api      *site.Site
	network  *fabric.Fabric
	far      *fabric.Node
	lister   *fabric.Node // nil until list was called
	old, new *fabric.Pod

	endpoints int // of each added Service
	services  int // without the dialled one
	started   int // number of started proxies
	frontend  netip.AddrPort
	changes   atomic.Int64 // under load so far
}

func newSetup(b *testing.B) *setup {
	b.Helper()
	s := &setup{dir: b.TempDir(), network: fabrictest.New(b), endpoints: endpointsPerService}
	s.far = s.addNode(b, "far")
	s.old, s.new = s.addServer(b, "old"), s.addServer(b, "new")
	host, err := s.network.AddHost("control-plane", s.far)
	must.Succeed(b, err)
	s.api = site.New(b, site.Config{Namespace: host.Namespace})
	s.createNode(b, s.far)
	s.createProbe(b)
	return s
}

func (s *setup) addNode(b *testing.B, name string) *fabric.Node {
	b.Helper()
	node, err := s.network.AddNode(name)
	if err != nil {
		b.Fatal(err)
	}
	return node
}

func (s *setup) addServer(b *testing.B, name string) *fabric.Pod {
	b.Helper()
	pod, err := s.far.AddPod(name)
	if err == nil {
		_, err = pod.Serve(podPort)
	}
	if err != nil {
		b.Fatal(err)
	}
	return pod
}
