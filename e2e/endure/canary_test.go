package endure_test

import (
	"context"
	"errors"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// canaryName is Vicinity's service proxy name next to kube-proxy, as in manifests/beside-kube-proxy. canaryRuns is the
// number of times that a Service changes to Vicinity and back. One of dialsPerLoss connections may be lost when it
// changes to Vicinity.
const (
	canaryName   = "vicinity"
	canaryRuns   = 10
	dialsPerLoss = 200
)

// canary is a node with two proxies, kube-proxy and Vicinity, and clients that dial one Service all the time.
type canary struct {
	*apiSetup
	traffic *traffic
	mu      sync.Mutex
	failed  []failedConnection
}

// failedConnection is a connection that was refused, got no packet back, or needed retransmissions.
type failedConnection struct {
	started time.Time
	client  string
	to      netip.AddrPort
	err     error
}

// TestCanaryLosesNoConnection moves a Service from kube-proxy to Vicinity and back, ten times, while clients dial it.
// kube-proxy is Kubernetes' own, with its defaults. Both proxies react to the label at the same time. If kube-proxy is
// faster, connections that start before Vicinity serves the Service are lost, which cannot be avoided. That is rare,
// and no other connection is lost.
func TestCanaryLosesNoConnection(t *testing.T) {
	t.Parallel() // with the storms
	s := &canary{apiSetup: newAPISetup(t), traffic: newTraffic(t)}
	s.startKubeProxy()
	// The ports are those of manifests/beside-kube-proxy, because kube-proxy uses the default ones.
	daemon := s.startProxy("--service-proxy-name", canaryName,
		"--healthz-bind-address", "127.0.0.1:10356", "--metrics-bind-address", "127.0.0.1:10349")
	daemon.waitForSync()
	s.waitForServed("kube-proxy", "vicinity")
	stop := onceAtEnd(t, s.traffic.end)
	s.dial(s.clients[0], web.ipv4())
	s.dial(s.clients[1], web.ipv6())
	s.dial(s.node.Namespace, web.ipv4())
	s.dial(s.outside, web.nodePort(s.node.IPv4))

	var switches []span
	for range canaryRuns {
		switches = append(switches, s.change(`"`+canaryName+`"`, "vicinity", "kube-proxy"))
		s.change("null", "kube-proxy", "vicinity")
	}
	stop()
	expectedLosses := 0
	for _, lost := range s.failed {
		if slices.ContainsFunc(switches, func(switching span) bool { return switching.contains(lost.started) }) {
			expectedLosses++
			continue
		}
		t.Errorf("a connection from %s to %s was lost: %v", lost.client, lost.to, lost.err)
	}
	dials := s.traffic.dials.Load()
	t.Logf("%d changes each way, %d connections; lost because kube-proxy stopped before Vicinity served: %d", canaryRuns, dials,
		expectedLosses)
	if int64(expectedLosses) > dials/dialsPerLoss {
		t.Errorf("%d of %d connections were lost on the way to Vicinity, want at most 1 in %d", expectedLosses, dials, dialsPerLoss)
	}
	if failed := daemon.failedSyncs(); len(failed) > 0 {
		t.Errorf("the proxy logged errors: %q", failed)
	}
	if warnings := daemon.Log.Lines(otherProxyMessage); len(warnings) > 0 {
		t.Errorf("the proxy warns of the intended second proxy: %q", warnings)
	}
}

// span is the time from a change of the label until only the proxy in the label serves the Service.
type span struct{ started, ended time.Time }

func (s span) contains(moment time.Time) bool {
	return !moment.Before(s.started) && moment.Before(s.ended)
}

// change moves the Service to another proxy by its label, in JSON, as users do. Its slices get the label later, which
// is the EndpointSlice controller's task. It returns when connections succeed through that proxy alone.
func (s *canary) change(label, to, from string) span {
	s.t.Helper()
	begun := time.Now()
	patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %s}}}`, policy.ServiceProxyNameLabel, label)
	s.retry("label Service "+web.name, func(ctx context.Context) error {
		_, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Patch(ctx, web.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	for _, slice := range s.slices(web, nil) {
		s.retry("label EndpointSlice "+slice.Name, func(ctx context.Context) error {
			_, err := s.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Patch(
				ctx, slice.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	}
	s.waitForServed(to, from)
	ended := time.Now()
	const connections = 200
	before := s.traffic.dials.Load()
	wait.Until(s.t, "connections through "+to+" alone", func() bool { return s.traffic.dials.Load() > before+connections })
	return span{begun, ended}
}

// dial makes new connections, one after the other, at a rate that leaves a small machine time for the rest. A lost one
// is recorded, and the client continues.
func (s *canary) dial(client *fabric.Namespace, to netip.AddrPort) {
	s.traffic.repeat(func() error {
		begun := time.Now()
		if err := dialOnce(client, to); err != nil {
			s.mu.Lock()
			s.failed = append(s.failed, failedConnection{begun, client.Name, to, err})
			s.mu.Unlock()
		}
		s.traffic.dials.Add(1)
		time.Sleep(2 * time.Millisecond)
		return nil
	})
}

// errRetransmitted is the error of a connection that succeeded but counts as lost.
var errRetransmitted = errors.New("packets were retransmitted")

// dialOnce connects. The kernel retransmits lost packets, so that a client would only notice a delay.
func dialOnce(client *fabric.Namespace, to netip.AddrPort) error {
	conn, err := client.Dial("tcp", to.String(), requestTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	connection := conn.(*net.TCPConn)
	raw, err := connection.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	if controlled := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); controlled != nil || err != nil {
		return errors.Join(controlled, err)
	}
	if info.Total_retrans > 0 {
		return errRetransmitted
	}
	return connection.SetLinger(0) // a reset instead of a FIN leaves no client port in TIME_WAIT
}

// kubeProxyConfig leaves the machine's own settings alone. Everything else is kube-proxy's default.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: %s,%s
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// startKubeProxy runs kube-proxy next to Vicinity until the test ends.
func (s *canary) startKubeProxy() *site.Process {
	s.t.Helper()
	client, err := s.api.ClientConfig("kube-proxy", "system:masters")
	must.Succeed(s.t, err)
	path := filepath.Join(s.t.TempDir(), "kube-proxy.yaml")
	text := fmt.Sprintf(kubeProxyConfig, fabric.PodsIPv4, fabric.PodsIPv6, s.node.Name, site.Kubeconfig(s.t, client))
	must.Succeed(s.t, os.WriteFile(path, []byte(text), 0o600))
	return site.Start(s.t, s.node.Namespace, exec.Command(s.kubeProxy(), "--config", path))
}

// kubeProxy returns the path of the program.
func (s *canary) kubeProxy() string { return s.api.Programs.Path(binaries.Kubernetes, "kube-proxy") }

// frontends are the maps in which each proxy has the frontends that it serves.
var frontends = map[string]string{"vicinity": "services", "kube-proxy": "service-ips"}

// waitForServed waits until one proxy serves the Service in both families, and the other one does not.
func (s *canary) waitForServed(server, other string) {
	s.t.Helper()
	serves := func(proxy, family string, addr netip.Addr) bool {
		// The table is missing until its proxy has created it.
		output, err := s.run("nft", "list", "map", family, proxy, frontends[proxy])
		return err == nil && strings.Contains(output, addr.String()+" . tcp . ")
	}
	wait.Until(s.t, "the Service is served by "+server+" alone", func() bool {
		for family, addr := range map[string]netip.Addr{"ip": web.ipv4().Addr(), "ip6": web.ipv6().Addr()} {
			if !serves(server, family, addr) || serves(other, family, addr) {
				return false
			}
		}
		return true
	})
}
