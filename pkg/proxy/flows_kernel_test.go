package proxy_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/flows"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// echoes is a namespace in which two endpoints answer UDP and TCP with their own name, all of it on loopback: the
// ClusterIP is 127.0.96.1, the endpoints are 127.0.244.N.
type echoes struct {
	t      *testing.T
	kernel *realKernel
	conn   *conntrack.Conn
	routes *interfaces.Routes
	ended  int // flows, so far
}

// Note ends flows before it returns, so that a test need not wait.
func (e *echoes) Note(noted []selection.Flows, scope selection.Scope) {
	passes, err := flows.Forget(e.t.Context(), conntrack.NewLooks(e.conn, nil), e.routes.IsLocal,
		func() ([]selection.Flows, selection.Scope) { return noted, scope })
	if err != nil {
		e.t.Errorf("end flows: %v", err)
	}
	for _, pass := range passes {
		e.ended += pass.Ended
	}
}

const echoPort = 5300

// onLoopback takes the clients for pods: loopback has no address of a scope that the kernel would masquerade with.
func onLoopback() ruleset.Config {
	return ruleset.Config{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{Prefixes: prefixes("127.0.0.0/8")}}
}

func newEchoes(t *testing.T) *echoes {
	e := &echoes{t: t, kernel: newRealKernel(t)}
	e.kernel.namespace.Do(func() {
		var err, routesErr error
		e.conn, err = conntrack.Dial()
		e.routes, routesErr = interfaces.OpenRoutes()
		if err != nil || routesErr != nil {
			t.Fatalf("dial conntrack: %v, %v", err, routesErr)
		}
	})
	t.Cleanup(func() { _ = e.conn.Close(); e.routes.Close() })
	for number := byte(1); number <= 2; number++ {
		e.serve(echoAddr(number), string('0'+rune(number)))
	}
	return e
}

func echoAddr(number byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 244, number}) }

// serve answers until the test ends.
func (e *echoes) serve(addr netip.Addr, name string) {
	var packets net.PacketConn
	var listener net.Listener
	e.kernel.namespace.Do(func() {
		var err, listenErr error
		packets, err = new(net.ListenConfig).ListenPacket(e.t.Context(), "udp4", netip.AddrPortFrom(addr, echoPort).String())
		listener, listenErr = new(net.ListenConfig).Listen(e.t.Context(), "tcp4", netip.AddrPortFrom(addr, echoPort).String())
		if err != nil || listenErr != nil {
			e.t.Fatalf("listen on %s: %v, %v", addr, err, listenErr)
		}
	})
	e.t.Cleanup(func() { _, _ = packets.Close(), listener.Close() })
	go func() {
		for buffer := make([]byte, 16); ; {
			_, client, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo([]byte(name), client)
		}
	}()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerAll(conn, name)
		}
	}()
}

func answerAll(conn net.Conn, name string) {
	defer func() { _ = conn.Close() }()
	for buffer := make([]byte, 16); ; {
		if _, err := conn.Read(buffer); err != nil {
			return
		}
		if _, err := conn.Write([]byte(name)); err != nil {
			return
		}
	}
}

// service returns a Service of both protocols with some of the endpoints.
func (e *echoes) service(numbers ...byte) model.Change {
	service := nameService("echo", "127.0.96.1")
	service.Ports = []model.ServicePort{
		{Name: "dns", Protocol: model.UDP, Port: echoPort}, {Name: "dns-tcp", Protocol: model.TCP, Port: echoPort}}
	slice := answeredBy("echo")
	slice.Ports = []model.SlicePort{
		{Name: "dns", Protocol: model.UDP, Port: echoPort}, {Name: "dns-tcp", Protocol: model.TCP, Port: echoPort}}
	for _, number := range numbers {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: echoAddr(number), Endpoint: model.Endpoint{Node: "elsewhere", Ready: true, Serving: true}})
	}
	return oneService(service, slice)
}

func (e *echoes) dial(network string) net.Conn { return e.dialAt(network, "127.0.96.1:5300") }

func (e *echoes) dialAt(network, addr string) net.Conn {
	var conn net.Conn
	e.kernel.namespace.Do(func() {
		var err error
		conn, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(e.t.Context(), network, addr)
		if err != nil {
			e.t.Fatalf("dial the Service over %s: %v", network, err)
		}
	})
	e.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask returns who answers on a connection; "none" if there is an error instead.
func (e *echoes) ask(conn net.Conn) string {
	e.t.Helper()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		e.t.Fatal(err)
	}
	buffer := make([]byte, 16)
	if _, err := conn.Write([]byte("?")); err != nil {
		return "none"
	}
	count, err := conn.Read(buffer)
	if err != nil {
		return "none"
	}
	return string(buffer[:count])
}

// TestFlowsOfUDPEndAndConnectionsOfTCPStay, in the kernel and its conntrack: the endpoint leaves, or all do, or the
// Service does, while the proxy runs or while none does.
func TestFlowsOfUDPEndAndConnectionsOfTCPStay(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(e *echoes) model.Change
		restart bool
		then    string // who answers UDP
	}{
		"the endpoint is replaced": {change: func(e *echoes) model.Change { return e.service(2) }, then: "2"},

		"the last endpoint leaves":                     {change: func(e *echoes) model.Change { return e.service() }, then: "none"},
		"the Service is deleted":                       {change: func(*echoes) model.Change { return without("echo") }, then: "none"},
		"the endpoint is replaced while no proxy runs": {change: func(e *echoes) model.Change { return e.service(2) }, restart: true, then: "2"},
		"the Service is deleted while no proxy runs": {
			change: func(*echoes) model.Change { return without("echo") }, restart: true, then: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEchoes(t)
			p := proxy.New(self, onLoopback(), e.kernel, noting(e))
			p.Apply(e.service(1))
			mustSync(t, p)
			udp, tcp := e.dial("udp4"), e.dial("tcp4")
			if overUDP, overTCP := e.ask(udp), e.ask(tcp); overUDP != "1" || overTCP != "1" {
				t.Fatalf("before: %s answers UDP and %s answers TCP, want 1", overUDP, overTCP)
			}
			if test.restart {
				p = proxy.New(self, onLoopback(), e.kernel, noting(e))
			}
			p.Apply(test.change(e))
			if mustSync(t, p); e.ended != 1 {
				t.Errorf("%d flows were ended, want 1", e.ended)
			}
			if overUDP, overTCP := e.ask(udp), e.ask(tcp); overUDP != test.then || overTCP != "1" {
				t.Errorf("after: %s answers UDP and %s answers TCP, want %s and 1", overUDP, overTCP, test.then)
			}
			p.Distrust()
			if mustSync(t, p); e.ended != 1 {
				t.Errorf("%d flows were ended in the end, want 1", e.ended)
			}
		})
	}
}

// TestAClientThatSentBeforeTheServiceHadAnEndpointIsAnswered: its packets had no endpoint, and its flow was never
// translated.
func TestAClientThatSentBeforeTheServiceHadAnEndpointIsAnswered(t *testing.T) {
	e := newEchoes(t)
	p := proxy.New(self, onLoopback(), e.kernel, noting(e))
	p.Apply(model.Change{})
	mustSync(t, p)
	e.serve(netip.MustParseAddr("127.0.96.1"), "host") // keeps the flow alive, like a client that goes on sending
	udp := e.dial("udp4")
	for _, step := range []struct {
		title  string
		change model.Change
		want   string
	}{
		{"there is no Service", model.Change{}, "host"},
		{"it has no endpoint", e.service(), "host"},
		{"it has one", e.service(1), "1"},
	} {
		p.Apply(step.change)
		mustSync(t, p)
		if got := e.ask(udp); got != step.want {
			t.Errorf("%s: %s answers, want %s", step.title, got, step.want)
		}
	}
}

// TestAStrangersFlowSurvivesRepairs: another program leads a node port's number elsewhere, at an address that serves
// node ports, as portmap does for a pod's hostPort. The flow began after the proxy had started.
func TestAStrangersFlowSurvivesRepairs(t *testing.T) {
	e := newEchoes(t)
	const addr = "192.0.2.1"
	e.kernel.namespace.Exec("ip", "address", "add", addr, "dev", "lo")
	e.kernel.namespace.Load("table ip portmap {\n\tchain output {\n\t\ttype nat hook output priority -101;\n" +
		"\t\tip daddr " + addr + " udp dport 30053 dnat to 127.0.244.2:5300\n\t}\n}\n")
	config := onLoopback()
	config.NodePorts = model.NodePortAddresses{Prefixes: prefixes(addr + "/32")}
	p := proxy.New(self, config, e.kernel, noting(e))
	change := e.service(1)
	for _, service := range change.Services {
		service.Ports[0].NodePort = 30053
	}
	p.Apply(change.Then(model.Change{LocalAddrs: addrs(addr)}))
	mustSync(t, p)
	udp := e.dialAt("udp4", addr+":30053")
	for range 2 {
		if got := e.ask(udp); got != "2" {
			t.Fatalf("%s answers, want 2, to which the other program leads", got)
		}
		p.Distrust()
		if mustSync(t, p); e.ended != 0 {
			t.Fatalf("%d flows were ended by a repair, want none", e.ended)
		}
	}
}
