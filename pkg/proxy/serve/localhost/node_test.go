//go:build linux

package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// waitTimeout is how long a test waits for an event that must happen. No test measures time.
const waitTimeout = wait.Timeout

// node is a network namespace with a server of node ports on loopback and some backends, which are on loopback, too.
type node struct {
	t         *testing.T
	namespace *netns.Namespace
	server    *Server
	events    *recordedEvents
	cluster   *model.Cluster
	planner   *selection.Planner
	stop      func()
}

// recordedEvents records the calls of an Observer.
type recordedEvents struct {
	mutex     sync.Mutex
	listening map[model.Family]int
	failed    map[model.Family]int
	outcomes  map[Outcome]int
	findings  []model.Finding
}

func (r *recordedEvents) Listening(family model.Family, ports int) {
	r.do(func() { r.listening[family] = ports })
}
func (r *recordedEvents) ListenFailed(family model.Family) { r.do(func() { r.failed[family]++ }) }
func (r *recordedEvents) Connection(_ model.Family, outcome Outcome) {
	r.do(func() { r.outcomes[outcome]++ })
}
func (r *recordedEvents) Found(findings []model.Finding) { r.do(func() { r.findings = findings }) }
func (r *recordedEvents) count(outcome Outcome) (n int) {
	r.do(func() { n = r.outcomes[outcome] })
	return n
}
func (r *recordedEvents) listenerCount(family model.Family) (n int) {
	r.do(func() { n = r.listening[family] })
	return n
}
func (r *recordedEvents) failureCount(family model.Family) (n int) {
	r.do(func() { n = r.failed[family] })
	return n
}
func (r *recordedEvents) currentFindings() (all []model.Finding) {
	r.do(func() { all = r.findings })
	return all
}
func (r *recordedEvents) do(f func()) { r.mutex.Lock(); defer r.mutex.Unlock(); f() }

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

// family is an IP family in which a test runs.
type family struct {
	model.Family
	loopback netip.Addr
	table    string // nft's name of the family
}

// inBothFamilies runs a test over IPv4 and over IPv6.
func inBothFamilies(t *testing.T, test func(*testing.T, family)) {
	t.Helper()
	for _, f := range []family{{model.IPv4, loopback4, "ip"}, {model.IPv6, loopback6, "ip6"}} {
		t.Run(f.String(), func(t *testing.T) { test(t, f) })
	}
}

func (f family) port(number uint16) string { return netip.AddrPortFrom(f.loopback, number).String() }
func (f family) web() string               { return f.port(30080) }
func (f family) other() string             { return f.port(30081) }

// newNode starts a server with the given maximum number of connections.
func newNode(t *testing.T, maxConnections int) *node {
	n := &node{t: t, namespace: netns.New(t)}
	n.cluster = model.NewCluster("node-a")
	n.planner = selection.NewPlanner(n.cluster)
	n.start(maxConnections)
	return n
}

func (n *node) start(maxConnections int) {
	n.events = &recordedEvents{listening: map[model.Family]int{}, failed: map[model.Family]int{}, outcomes: map[Outcome]int{}}
	n.server = NewServer(map[model.Family]netip.Addr{model.IPv4: loopback4, model.IPv6: loopback6}, n.events)
	n.server.limiter = newConnLimiter(maxConnections)
	n.server.listen = func(ctx context.Context, addr netip.AddrPort) (listener net.Listener, err error) {
		n.namespace.Do(func() { listener, err = listen(ctx, addr) })
		return listener, err
	}
	n.server.dial = func(ctx context.Context, addr netip.AddrPort) (connection *net.TCPConn, err error) {
		n.namespace.Do(func() { connection, err = dial(ctx, addr) })
		return connection, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.server.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				n.t.Error(err)
			}
		case <-time.After(waitTimeout):
			n.t.Error("the server does not stop")
		}
	})
	n.t.Cleanup(n.stop)
}

// backend listens on a free port of an address and serves each connection with a function. It returns its address and
// port.
func (n *node) backend(addr netip.Addr, serve func(*net.TCPConn)) netip.AddrPort {
	n.t.Helper()
	listener := n.listener(netip.AddrPortFrom(addr, 0).String())
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = connection.Close() }()
				serve(connection.(*net.TCPConn))
			}()
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

func (n *node) listener(address string) net.Listener {
	n.t.Helper()
	var listener net.Listener
	var err error
	n.namespace.Do(func() { listener, err = net.Listen("tcp", address) })
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// service is a Service with one node port in both families, and its endpoints.
type service struct {
	name      string
	nodePort  uint16
	endpoints []netip.AddrPort
	change    func(*model.Service)
	nodeName  string // node of its endpoints; node-b if empty
}

// delete deletes a Service and passes that to the server.
func (n *node) delete(name string) { n.apply(service{name: name}) }

// apply passes the decisions about Services to the server. It deletes Services without a node port.
func (n *node) apply(services ...service) {
	n.t.Helper()
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for _, s := range services {
		name := model.ObjectName{Namespace: "shop", Name: s.name}
		change.Services[name] = nil
		for i := range 8 {
			change.Slices[model.ObjectName{Namespace: "shop", Name: fmt.Sprint(s.name, "-", i)}] = nil
		}
		if s.nodePort == 0 {
			continue
		}
		change.Services[name] = &model.Service{
			Name: name, ClusterIPs: []netip.Addr{
				netip.AddrFrom4([4]byte{10, 96, 0, byte(s.nodePort)}), netip.MustParseAddr(fmt.Sprintf("fd00::%x", s.nodePort)),
			},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: s.nodePort}},
		}
		if s.change != nil {
			s.change(change.Services[name])
		}
		nodeName := s.nodeName
		if nodeName == "" {
			nodeName = "node-b"
		}
		for i, endpoint := range s.endpoints { // each endpoint has a port of its own
			slice := &model.EndpointSlice{
				Name: model.ObjectName{Namespace: "shop", Name: fmt.Sprint(s.name, "-", i)}, Service: name, Family: model.FamilyOf(endpoint.Addr()),
				Ports:     []model.SlicePort{{Protocol: model.TCP, Port: endpoint.Port()}},
				Endpoints: []model.SliceEndpoint{{Addr: endpoint.Addr(), Endpoint: model.Endpoint{Node: nodeName, Ready: true, Serving: true}}},
			}
			change.Slices[slice.Name] = slice
		}
	}
	n.cluster.Apply(change)
	for name := range change.Services {
		n.server.OnApplied(name, n.server.Derive(n.planner.Decide(name, model.Families)))
	}
}

// waitForListeners waits until the server listens on the given number of node ports of each family.
func (n *node) waitForListeners(ipv4, ipv6 int) {
	n.t.Helper()
	wait.Until(n.t, fmt.Sprintf("%d and %d listeners", ipv4, ipv6), func() bool {
		return n.events.listenerCount(model.IPv4) == ipv4 && n.events.listenerCount(model.IPv6) == ipv6
	})
}

// waitForFamilyListeners waits until the server listens on the given number of node ports of a family.
func (n *node) waitForFamilyListeners(f family, ports int) {
	n.t.Helper()
	wait.Equal(n.t, "listeners over "+f.String(), ports, func() int { return n.events.listenerCount(f.Family) })
}

// tryDial dials a node port.
func (n *node) tryDial(address string) (connection *net.TCPConn, err error) {
	n.t.Helper()
	n.namespace.Do(func() {
		var opened net.Conn
		if opened, err = (&net.Dialer{Timeout: waitTimeout}).Dial("tcp", address); err == nil {
			connection = opened.(*net.TCPConn)
		}
	})
	if err == nil {
		_ = connection.SetDeadline(time.Now().Add(waitTimeout))
		n.t.Cleanup(func() { _ = connection.Close() })
	}
	return connection, err
}

func (n *node) dial(address string) *net.TCPConn {
	n.t.Helper()
	connection, err := n.tryDial(address)
	if err != nil {
		n.t.Fatal(err)
	}
	return connection
}

// request dials a node port, sends nothing, and returns the response.
func (n *node) request(address string) (string, error) {
	connection, err := n.tryDial(address)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }()
	_ = connection.CloseWrite() // if it was reset in the meantime, reading fails
	text, err := io.ReadAll(connection)
	return string(text), err
}

func (n *node) expectReply(address, want string) {
	n.t.Helper()
	if got, err := n.request(address); got != want || err != nil {
		n.t.Errorf("%s returned %q, %v, want %q", address, got, err, want)
	}
}

func (n *node) expectRefused(address string) {
	n.t.Helper()
	if got, err := n.request(address); err == nil || !strings.Contains(err.Error(), "connection refused") {
		n.t.Errorf("%s returned %q, %v, want a refused connection", address, got, err)
	}
}

// nameBackend is a backend that sends its name and closes the connection.
func nameBackend(name string) func(*net.TCPConn) {
	return func(c *net.TCPConn) { _, _ = io.WriteString(c, name) }
}

// echoBackend is a backend that keeps each connection until the other side ends it, and counts the open ones.
func echoBackend(open *atomic.Int64) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		open.Add(1)
		defer open.Add(-1)
		_, _ = io.Copy(c, c)
	}
}

// expectClosed fails the test unless a connection ends, with or without a reset.
func (n *node) expectClosed(connection *net.TCPConn) {
	n.t.Helper()
	var timeout net.Error
	if _, err := io.Copy(io.Discard, connection); errors.As(err, &timeout) && timeout.Timeout() {
		n.t.Error("the connection is still open")
	}
}

// expectEcho fails the test unless a connection returns the data that is sent.
func (n *node) expectEcho(connection *net.TCPConn) {
	n.t.Helper()
	got := make([]byte, 4)
	if _, err := io.WriteString(connection, "ping"); err != nil {
		n.t.Fatal(err)
	}
	if _, err := io.ReadFull(connection, got); err != nil || string(got) != "ping" {
		n.t.Errorf("got %q, %v, want the sent data", got, err)
	}
}
