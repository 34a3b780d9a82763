package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// testServer is a server on loopback that serves shop/web.
type testServer struct {
	t         *testing.T
	address   string
	table     *Table
	responses atomic.Int64
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	s := &testServer{t: t, table: &Table{Zone: testZone}}
	service := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a"}}
	s.table.OnApplied(model.ObjectName{Namespace: "shop", Name: "web"}, s.table.Derive(service.decisions()))
	address := reserve.OnLoopback(t)
	s.address = address.String()
	server := &Server{
		Table: s.table, Log: slog.New(slog.DiscardHandler), OnResponse: func(Result) { s.responses.Add(1) },
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx, address) }()
	t.Cleanup(func() {
		stop()
		if err := wait.Receive(t, "the end of the server", ended); err != nil {
			t.Error(err)
		}
	})
	wait.Success(t, "the server listens", func() error {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return s
}

func (s *testServer) dial(network string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial(network, s.address)
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	must.Succeed(s.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

func (s *testServer) query(conn net.Conn) string {
	s.t.Helper()
	client := &miekg.Conn{Conn: conn}
	must.Succeed(s.t, client.WriteMsg(newQuery(s.t, "A "+webName)))
	answer, err := client.ReadMsg()
	must.Succeed(s.t, err)
	return answerText(answer)
}

const wantAddress = "NOERROR; A 10.0.0.1"

func TestServerWaitsForACompleteTable(t *testing.T) {
	s := newTestServer(t)
	for _, network := range []string{"udp", "tcp"} {
		if got := s.query(s.dial(network)); got != "REFUSED" {
			t.Errorf("over %s, before the table is complete: %s, want REFUSED", network, got)
		}
	}
	s.table.OnSynced(selection.SyncState{})
	for _, network := range []string{"udp", "tcp"} {
		if got := s.query(s.dial(network)); got != wantAddress {
			t.Errorf("over %s: %s", network, got)
		}
	}
	if s.table.Len() != 1 || s.responses.Load() != 4 {
		t.Errorf("%d Services, %d queries; want 1 and 4", s.table.Len(), s.responses.Load())
	}
	s.table.OnApplied(model.ObjectName{Namespace: "shop", Name: "web"}, nil)
	if got := s.query(s.dial("udp")); got != "REFUSED" || s.table.Len() != 0 {
		t.Errorf("deleted Service: response %s, %d Services in the table; want REFUSED and none", got, s.table.Len())
	}
}

// TestAConnectionCarriesManyQueries: the client sends all of them before it reads a response.
func TestAConnectionCarriesManyQueries(t *testing.T) {
	s := newTestServer(t)
	s.table.OnSynced(selection.SyncState{})
	client := &miekg.Conn{Conn: s.dial("tcp")}
	const count = 100
	for i := range count {
		query := newQuery(t, "A "+webName)
		query.Id = uint16(i)
		must.Succeed(t, client.WriteMsg(query))
	}
	for i := range count {
		answer, err := client.ReadMsg()
		must.Succeed(t, err)
		if answer.Id != uint16(i) || answerText(answer) != wantAddress {
			t.Fatalf("response %d has ID %d: %s", i, answer.Id, answerText(answer))
		}
	}
}

// TestBadConnectionsEnd: a connection that announces a query that is too long, or sends something else, is closed.
// Others continue.
func TestBadConnectionsEnd(t *testing.T) {
	s := newTestServer(t)
	s.table.OnSynced(selection.SyncState{})
	good := s.dial("tcp")
	for title, sent := range map[string][]byte{
		"a long message": {0xff, 0xff}, "no header": {0, 3, 1, 2, 3}, "an empty message": {0, 0},
	} {
		bad := s.dial("tcp")
		if _, err := bad.Write(sent); err != nil {
			t.Fatal(err)
		}
		if n, err := bad.Read(make([]byte, 100)); n > 0 || err == nil {
			t.Errorf("%s: got %d bytes, %v, want a closed connection", title, n, err)
		}
	}
	if got := s.query(good); got != wantAddress {
		t.Errorf("the valid connection gets %s", got)
	}
	socket := s.dial("udp")
	for _, sent := range [][]byte{nil, {1}, make([]byte, 65000)} {
		if _, err := socket.Write(sent); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.query(s.dial("udp")); got != wantAddress {
		t.Errorf("after datagrams that are not queries: %s", got)
	}
}

// TestIdleConnectionsDoNotBlockOthers: a client that opens thousands of connections and sends nothing blocks no other
// client, and no other client loses a connection.
func TestIdleConnectionsDoNotBlockOthers(t *testing.T) {
	s := newTestServer(t)
	s.table.OnSynced(selection.SyncState{})
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	used, err := dialer.Dial("tcp", s.address)
	must.Succeed(t, err)
	defer func() { _ = used.Close() }()
	must.Succeed(t, used.SetDeadline(time.Now().Add(time.Minute)))
	var idle []net.Conn
	for range maxConnections + 100 {
		idle = append(idle, s.dial("tcp"))
		if len(idle)%100 == 0 {
			if got := s.query(used); got != wantAddress {
				t.Fatalf("with %d idle connections: %s", len(idle), got)
			}
		}
	}
	if got := s.query(s.dial("tcp")); got != wantAddress {
		t.Errorf("a new connection gets %s", got)
	}
	must.Succeed(t, idle[0].SetReadDeadline(time.Now().Add(30*time.Second)))
	if _, err := io.ReadFull(idle[0], make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
		t.Errorf("oldest connection: %v, want it closed", err)
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET)
}

// TestSlowSenderDoesNotBlockOthers: the sender's query arrives byte by byte.
func TestSlowSenderDoesNotBlockOthers(t *testing.T) {
	s := newTestServer(t)
	s.table.OnSynced(selection.SyncState{})
	packed, err := newQuery(t, "A "+webName).Pack()
	must.Succeed(t, err)
	slow := s.dial("tcp")
	message := append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
	for _, sent := range message {
		if _, err := slow.Write([]byte{sent}); err != nil {
			t.Fatal(err)
		}
		if got := s.query(s.dial("tcp")); got != wantAddress {
			t.Fatalf("with a slow sender: %s", got)
		}
	}
	answer, err := (&miekg.Conn{Conn: slow}).ReadMsg()
	if err != nil || answerText(answer) != wantAddress {
		t.Errorf("the slow sender gets %v, %v", answer, err)
	}
}
