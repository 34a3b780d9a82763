package reachability_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// manyNodes is the number of nodes, of which half fail at once. One machine has the addresses of all nodes and of their
// endpoints, two per node.
const manyNodes = 600

var (
	manyNodesRange     = netip.MustParsePrefix("10.65.0.0/16")
	manyEndpointsRange = netip.MustParsePrefix("10.66.0.0/16")
)

// TestThreeHundredNodesDieAtOnce checks that each failed node is ejected because of its own unreplied connections, and
// that none of the other three hundred is ejected.
func TestThreeHundredNodesDieAtOnce(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, network: fabrictest.New(t), program: site.Program(t, "proxy"), manifests: t.TempDir()}
	node, err := s.network.AddNode("node-1")
	must.Succeed(t, err)
	s.client, err = node.AddPod("client")
	must.Succeed(t, err)
	router := s.addMany(node)
	s.proxy = site.Start(t, node.Namespace, exec.Command(s.program, "run", "--node", node.Name, "--manifests", s.manifests,
		"--cluster-cidr", fabric.PodsIPv4.String(), "--unreachable-node-mode", "enforce"))
	s.proxy.Log.WaitFor(t, "the first sync is in the kernel")
	s.waitForBaselines(manyNodes)
	var dialling sync.WaitGroup
	done := make(chan struct{})
	defer dialling.Wait()
	defer close(done)
	dialling.Go(func() { s.dialMany(done) })
	time.Sleep(2 * time.Second)
	s.expectNoEjection(s.proxy)

	var dead []string
	for i := range manyNodes / 2 {
		dead = append(dead, manyAddr(manyNodesRange, i).String(), manyAddr(manyEndpointsRange, i).String())
	}
	s.drop(router.Namespace, "ip daddr { "+strings.Join(dead, ", ")+" }")
	took := s.waitForUnreachable(manyNodes / 2)
	t.Logf("the last of %d was ejected after %v", manyNodes/2, took)
	time.Sleep(2 * time.Second)
	ejected := ejectedNodes(s.proxy)
	slices.Sort(ejected)
	var want []string
	for i := range manyNodes / 2 {
		want = append(want, manyName(i))
	}
	if !slices.Equal(ejected, want) {
		t.Errorf("%d ejections: %v, want exactly one of each of %v", len(ejected), ejected, want)
	}
}

func manyName(i int) string { return fmt.Sprintf("other-%03d", i) }

func manyAddr(prefix netip.Prefix, i int) netip.Addr {
	bytes := prefix.Addr().As4()
	bytes[2], bytes[3] = byte(i/200), byte(1+i%200)
	return netip.AddrFrom4(bytes)
}

// addMany writes the Nodes and a Service with an endpoint on each, and adds the machine with all their addresses.
func (tb *testbed) addMany(node *fabric.Node) *fabric.Node {
	tb.t.Helper()
	router, err := tb.network.AddNode("others")
	must.Succeed(tb.t, err)
	for _, prefix := range []netip.Prefix{manyNodesRange, manyEndpointsRange} {
		must.Succeed(tb.t, node.RouteVia(prefix, router.Namespace))
		_, err := router.Run(exec.CommandContext(tb.t.Context(), "ip", "route", "add", "local", prefix.String(), "dev", "lo"))
		must.Succeed(tb.t, err)
	}
	for _, port := range []string{"10256", "8080"} {
		listener, err := router.Listen("tcp4", "0.0.0.0:"+port)
		must.Succeed(tb.t, err)
		var accepting sync.WaitGroup
		accepting.Go(func() { acceptAll(listener) })
		tb.t.Cleanup(func() {
			_ = listener.Close()
			accepting.Wait()
		})
	}
	var objects, endpoints strings.Builder
	fmt.Fprintf(&objects, nodeManifest, node.Name, 0, node.IPv4, node.IPv6)
	for i := range manyNodes {
		fmt.Fprintf(&objects, nodeManifest, manyName(i), i%3, manyAddr(manyNodesRange, i), fmt.Sprintf("fd00:65::%x", i+1))
		fmt.Fprintf(&endpoints, endpointManifest, manyAddr(manyEndpointsRange, i), manyName(i))
	}
	fmt.Fprintf(&objects, serviceManifest, web.Addr(), web6.Addr())
	fmt.Fprintf(&objects, sliceManifest, "ipv4", "IPv4", endpoints.String())
	must.Succeed(tb.t, os.WriteFile(filepath.Join(tb.manifests, "all.yaml"), []byte(objects.String()), 0o600))
	return router
}

func acceptAll(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// dialMany starts three hundred connections a second until done is closed, with a timeout of three seconds each.
func (tb *testbed) dialMany(done <-chan struct{}) {
	const perSecond, seconds = 300, 3
	err := tb.client.Do(func() error {
		var sockets []int
		closeFirst := func(count int) {
			for _, fd := range sockets[:count] {
				_ = unix.Close(fd)
			}
			sockets = sockets[count:]
		}
		defer func() { closeFirst(len(sockets)) }()
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return nil
			case <-tick.C:
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open socket: %w", err)
			}
			sockets = append(sockets, fd)
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: web.Addr().As4(), Port: int(web.Port())})
			if err != nil && err != unix.EINPROGRESS {
				return fmt.Errorf("dial %v: %w", web, err)
			}
			closeFirst(max(0, len(sockets)-perSecond*seconds))
		}
	})
	if err != nil {
		tb.t.Error(err)
	}
}
