//go:build linux

package healthcheck

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// waitTimeout is how long a test waits for an event that must happen. No test measures time.
const waitTimeout = wait.Timeout

type (
	checks = map[model.ObjectName]selection.HealthCheck
	counts = map[model.Family]int
)

// name parses a Service's name of the form "namespace/name".
func name(text string) model.ObjectName {
	namespace, name, _ := strings.Cut(text, "/")
	return model.ObjectName{Namespace: namespace, Name: name}
}

// check returns a check of a Service with only IPv4.
func check(port uint16, endpoints int) selection.HealthCheck {
	return selection.HealthCheck{Port: port, Endpoints: counts{model.IPv4: endpoints}}
}

// scopeOf returns a scope with node ports on some addresses.
func scopeOf(texts ...string) selection.Scope {
	var scope selection.Scope
	for _, text := range texts {
		scope.NodePorts = append(scope.NodePorts, netip.MustParseAddr(text))
	}
	return scope
}

var allAddresses, noAddress = selection.Scope{AllAddrFamilies: model.Families}, selection.Scope{}

// node is a network namespace with servers and clients. Every address of 127.0.0.0/8 and ::1 is local to it.
type node struct {
	*netns.Namespace
	t           *testing.T
	servers     *Servers
	isUnhealthy atomic.Bool
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Namespace: netns.New(t), t: t}
	n.servers = New(slog.New(slog.DiscardHandler), func() bool { return !n.isUnhealthy.Load() })
	t.Cleanup(n.servers.Close)
	return n
}

// trySync syncs within the namespace. The error joins the reasons why Services are not served.
func (n *node) trySync(checks checks, scope selection.Scope) error {
	n.t.Helper()
	var findings []model.Finding
	n.Do(func() { findings = n.servers.Sync(n.t.Context(), checks, &scope) })
	var errs []error
	for _, finding := range findings {
		_, reason, _ := strings.Cut(finding.Reason, "retrying: ")
		errs = append(errs, errors.New(reason))
	}
	return errors.Join(errs...)
}

func (n *node) sync(checks checks, scope selection.Scope) {
	n.t.Helper()
	if err := n.trySync(checks, scope); err != nil {
		n.t.Fatal(err)
	}
}

// addAddresses adds addresses to the loopback interface.
func (n *node) addAddresses(texts ...string) {
	n.t.Helper()
	n.Do(func() {
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			n.t.Fatal(err)
		}
		for _, text := range texts {
			addr, err := netlink.ParseAddr(text)
			if err == nil {
				err = netlink.AddrAdd(loopback, addr)
			}
			if err != nil {
				n.t.Fatalf("add %s: %v", text, err)
			}
		}
	})
}

// occupy occupies an address until the test ends or the returned function is called.
func (n *node) occupy(address string) (release func()) {
	n.t.Helper()
	var listener net.Listener
	var err error
	n.Do(func() {
		var config net.ListenConfig
		listener, err = config.Listen(n.t.Context(), "tcp", address)
	})
	if err != nil {
		n.t.Fatal(err)
	}
	release = func() { _ = listener.Close() }
	n.t.Cleanup(release)
	return release
}

// connection is a client's connection that stays open between requests.
type connection struct {
	net.Conn
	reader *bufio.Reader
}

func (n *node) dial(ctx context.Context, address string) (*connection, error) {
	var conn net.Conn
	var err error
	n.Do(func() {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, "tcp", address)
	})
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, reader: bufio.NewReader(conn)}, conn.SetDeadline(time.Now().Add(waitTimeout))
}

// mustDial opens a connection that is closed when the test ends.
func (n *node) mustDial(address string) *connection {
	n.t.Helper()
	c, err := n.dial(n.t.Context(), address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// reply is a response to a client. Closing means that the server closes the connection after it.
type reply struct {
	Status  int
	Header  http.Header
	Body    string
	Closing bool
}

// request sends one request and reads the whole response.
func (c *connection) request(method, path, body string) (reply, error) {
	request, err := http.NewRequest(method, "http://node"+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if err := request.Write(c); err != nil {
		return reply{}, err
	}
	response, err := http.ReadResponse(c.reader, request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return reply{Status: response.StatusCode, Header: response.Header, Body: string(text), Closing: response.Close}, err
}

// requestOnce sends a request over a new connection.
func (n *node) requestOnce(ctx context.Context, address string) (reply, error) {
	c, err := n.dial(ctx, address)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = c.Close() }()
	return c.request(http.MethodGet, "/", "")
}

// expectServing asserts the response at an address: its Service and its number of endpoints.
func (n *node) expectServing(address, service string, endpoints int) {
	n.t.Helper()
	got, err := n.requestOnce(n.t.Context(), address)
	if err != nil {
		n.t.Errorf("request to %s: %v", address, err)
		return
	}
	if diff := cmp.Diff(bodyOf(service, endpoints, true), got.Body); diff != "" {
		n.t.Errorf("response of %s (-want +got):\n%s", address, diff)
	}
}

// expectClosed asserts that no server listens on an address.
func (n *node) expectClosed(address string) {
	n.t.Helper()
	c, err := n.dial(n.t.Context(), address)
	if err == nil {
		_ = c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		n.t.Errorf("connect to %s: %v, want a refused connection", address, err)
	}
}
