package daemons_test

import (
	"net/netip"
	"os"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// site is a network with a control plane, a node for each proxy, and a node with endpoints.
type site struct {
	dir      string
	programs binaries.Programs
	plane    *controlplane.ControlPlane
	client   *kubernetes.Clientset
	network  *fabric.Fabric
	far      *fabric.Node
	old, new *fabric.Pod

	services int // that exist, beside the one that is dialled
	probe    netip.AddrPort
	changes  atomic.Int64 // that were made under load so far
}

func newSite(b *testing.B) *site {
	b.Helper()
	s := &site{dir: b.TempDir()}
	var err error
	if s.programs, err = binaries.Build(b.Context(), os.Stderr, binaries.Etcd, binaries.Kubernetes); err != nil {
		b.Fatal(err)
	}
	if s.network, err = fabric.New(); err != nil {
		b.Fatalf("build a network (this needs root): %v", err)
	}
	b.Cleanup(func() {
		if err := s.network.Close(); err != nil {
			b.Errorf("take the network down: %v", err)
		}
	})
	s.far = s.addNode(b, "far")
	s.old, s.new = s.addServer(b, "old"), s.addServer(b, "new")
	s.startControlPlane(b)
	s.createNode(b, s.far)
	s.createProbe(b)
	return s
}

func (s *site) addNode(b *testing.B, name string) *fabric.Node {
	b.Helper()
	node, err := s.network.AddNode(name)
	if err != nil {
		b.Fatal(err)
	}
	return node
}

func (s *site) addServer(b *testing.B, name string) *fabric.Pod {
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

func (s *site) startControlPlane(b *testing.B) {
	b.Helper()
	host, err := s.network.AddHost("control-plane", s.far)
	if err != nil {
		b.Fatal(err)
	}
	s.plane, err = controlplane.Start(b.Context(), controlplane.Config{
		Dir: s.dir, Programs: s.programs, Place: host, Address: host.IPv4,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.plane.Stop)
	if s.client, err = kubernetes.NewForConfig(s.plane.AdminConfig()); err != nil {
		b.Fatal(err)
	}
}
