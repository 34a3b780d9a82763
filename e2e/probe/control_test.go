package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// server listens on loopback over TCP and UDP, and sends its name in greetings.
type server struct{ tcp, udp string }

func newServer(t *testing.T, name string) server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packets.Close() })
	go func() { _ = greetConnections(listener, name) }() // until it is closed
	go func() { _ = greetPackets(packets, name) }()      // until it is closed
	return server{tcp: listener.Addr().String(), udp: packets.LocalAddr().String()}
}

// control is a client of a probe's control API.
type control struct {
	t   *testing.T
	url string
}

func newTestControl(t *testing.T) control {
	t.Helper()
	web := httptest.NewServer(newControl())
	t.Cleanup(web.Close)
	return control{t: t, url: web.URL}
}

// request sends a request and decodes the response into into, unless that is nil.
func (c control) request(method, path string, query url.Values, into any) (status int) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path+"?"+query.Encode(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	if into != nil {
		if err := json.NewDecoder(response.Body).Decode(into); err != nil {
			c.t.Fatalf("%s %s: %s: %v", method, path, response.Status, err)
		}
	}
	return response.StatusCode
}

func (c control) dial(query url.Values) results {
	c.t.Helper()
	var got results
	c.request(http.MethodGet, "/dial", query, &got)
	return got
}

func TestDiallingCountsServersAndClientAddresses(t *testing.T) {
	s, c := newServer(t, "web-1"), newTestControl(t)
	want := results{Servers: map[string]int{"web-1": 5}, Clients: map[string]int{"127.0.0.1": 5}, Errors: map[string]int{}}
	for network, address := range map[string]string{"tcp": s.tcp, "udp": s.udp} {
		got := c.dial(url.Values{"network": {network}, "address": {address}, "count": {"5"}, "timeout": {"1m"}, "interval": {"1ms"}})
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(results{}, "SlowestMS")); diff != "" {
			t.Errorf("results over %s differ (-want +got):\n%s", network, diff)
		}
		if got.SlowestMS <= 0 {
			t.Errorf("%s: the slowest connection took %f ms, want more than 0", network, got.SlowestMS)
		}
	}
}

func TestDiallingDistinguishesARefusalFromATimeout(t *testing.T) {
	c := newTestControl(t)
	closed := reserve.OnLoopback(t).String()
	unresponsive, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and no program replies
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unresponsive.Close() })
	for _, test := range []struct{ network, address, timeout, want string }{
		{"tcp", closed, "1m", "connection refused"},
		{"udp", closed, "1m", "connection refused"},
		{"tcp", unresponsive.Addr().String(), "50ms", "timeout"},
	} {
		query := url.Values{"network": {test.network}, "address": {test.address}, "count": {"3"}, "timeout": {test.timeout}}
		got := c.dial(query)
		if len(got.Errors) != 1 || len(got.Servers) != 0 {
			t.Errorf("%s, want %s: %+v, want one kind of error only", test.network, test.want, got)
		}
		for text, times := range got.Errors {
			if !strings.Contains(text, test.want) || times != 3 {
				t.Errorf("got %d times error %q, want 3 times %s", times, text, test.want)
			}
		}
		for _, failed := range got.Failures {
			if wasOpen := test.want == "timeout" || test.network == "udp"; failed.Connected.IsZero() == wasOpen || failed.Address != test.address {
				t.Errorf("%s, want %s: %+v, want that it was established: %v", test.network, test.want, failed, wasOpen)
			}
		}
		if len(got.Failures) != 3 {
			t.Errorf("%d failures are listed, want 3", len(got.Failures))
		}
	}
}

func TestConnectionsThatOverlapDoNotWaitForEachOther(t *testing.T) {
	c := newTestControl(t)
	unresponsive, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and no program replies
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unresponsive.Close() })
	began := time.Now()
	got := c.dial(url.Values{
		"address": {unresponsive.Addr().String()}, "count": {"50"}, "timeout": {"2s"}, "interval": {"1ms"}, "overlap": {"true"},
	})
	failures := 0
	for _, times := range got.Errors {
		failures += times
	}
	if took := time.Since(began); failures != 50 || took > 50*time.Second {
		t.Errorf("%+v after %v, want 50 concurrent errors", got, took)
	}
}

func TestDiallingFromAFixedPortWorksAgainAtOnce(t *testing.T) {
	s, c := newServer(t, "web-1"), newTestControl(t)
	const sourcePort = 9871 // below the kernel's ephemeral ports
	for network, address := range map[string]string{"tcp": s.tcp, "udp": s.udp} {
		query := url.Values{
			"network": {network}, "address": {address}, "count": {"3"}, "timeout": {"1m"},
			"source_port": {strconv.Itoa(sourcePort)},
		}
		if got := c.dial(query); got.Servers["web-1"] != 3 {
			t.Errorf("%s: %+v, want 3 replies of web-1", network, got)
		}
	}
}

func TestAnInvalidDialRequestIsRejected(t *testing.T) {
	c := newTestControl(t)
	for _, query := range []url.Values{
		{}, {"address": {"127.0.0.1:1"}, "network": {"sctp"}}, {"address": {"127.0.0.1:1"}, "count": {"-1"}},
		{"address": {"127.0.0.1:1"}, "timeout": {"soon"}}, {"address": {"127.0.0.1:1"}, "source_port": {"70000"}},
		{"address": {"127.0.0.1:1"}, "overlap": {"often"}},
	} {
		if status := c.request(http.MethodGet, "/dial", query, nil); status != http.StatusBadRequest {
			t.Errorf("query %v: status %d, want %d", query, status, http.StatusBadRequest)
		}
	}
}

func TestAProbeIsAsReadyAsRequested(t *testing.T) {
	c := newTestControl(t)
	for _, test := range []struct {
		value string
		want  int
	}{{"", http.StatusOK}, {"false", http.StatusServiceUnavailable}, {"true", http.StatusOK}} {
		if test.value != "" {
			if status := c.request(http.MethodPost, "/ready", url.Values{"value": {test.value}}, nil); status != http.StatusOK {
				t.Errorf("set ready to %s: status %d", test.value, status)
			}
		}
		if status := c.request(http.MethodGet, "/healthz", nil, nil); status != test.want {
			t.Errorf("after %q: status %d, want %d", test.value, status, test.want)
		}
	}
}

func TestNamesAreLookedUp(t *testing.T) {
	c := newTestControl(t)
	var got map[string][]string
	c.request(http.MethodGet, "/resolve", url.Values{"host": {"127.0.0.1"}}, &got)
	if diff := cmp.Diff([]string{"127.0.0.1"}, got["addresses"]); diff != "" {
		t.Errorf("the addresses differ (-want +got):\n%s", diff)
	}
	if status := c.request(http.MethodGet, "/resolve", url.Values{"host": {"no such name"}}, nil); status != http.StatusBadGateway {
		t.Errorf("an unknown name: status %d, want %d", status, http.StatusBadGateway)
	}
}

func TestAConnectionIsHeldUntilTheServerIsGone(t *testing.T) {
	c := newTestControl(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	connections := make(chan net.Conn, 1)
	go func() { _ = greetConnections(recordingListener{listener, connections}, "web-1") }() // until it is closed

	var created map[string]string
	c.request(http.MethodPost, "/hold", url.Values{"address": {listener.Addr().String()}}, &created)
	report := func() (s state) {
		c.request(http.MethodGet, "/hold/"+created["id"], nil, &s)
		return s
	}
	wait.Until(t, "lines are echoed", func() bool { return report().Echoes > 2 })
	if s := report(); !s.Alive || s.Server != "web-1" {
		t.Errorf("%+v, want alive and server web-1", s)
	}
	(<-connections).Close()
	wait.Until(t, "the connection has ended", func() bool { return !report().Alive })
	if s := report(); s.Error == "" {
		t.Errorf("the closed connection has no error: %+v", s)
	}
}

// recordingListener is a listener that passes on its accepted connections.
type recordingListener struct {
	net.Listener
	connections chan net.Conn
}

func (r recordingListener) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if err == nil {
		r.connections <- conn
	}
	return conn, err
}

func TestAHeldConnectionThatIsEndedIsForgotten(t *testing.T) {
	s, c := newServer(t, "web-1"), newTestControl(t)
	var created map[string]string
	c.request(http.MethodPost, "/hold", url.Values{"address": {s.tcp}}, &created)
	path := "/hold/" + created["id"]
	if status := c.request(http.MethodDelete, path, nil, nil); status != http.StatusOK {
		t.Errorf("close the connection: status %d", status)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if status := c.request(method, path, nil, nil); status != http.StatusNotFound {
			t.Errorf("%s of the closed connection: status %d, want %d", method, status, http.StatusNotFound)
		}
	}
}
