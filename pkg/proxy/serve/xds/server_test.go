package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// testServer is a cluster with a running server.
type testServer struct {
	*testCluster
	server  *Server
	address string
	log     *logs.Log
}

// count returns the number of events of a kind: "answered EDS", "rejected EDS", or a reason.
func (s *testServer) count(event string) int {
	counts := s.server.Counts()
	for k, name := range TypeNames {
		switch event {
		case "answered " + name:
			return counts.Sent[k]
		case "rejected " + name:
			return counts.NACKed[k]
		}
	}
	return counts.Rejected[RejectReason(event)]
}

// usageText returns the numbers of streams and names.
func (s *testServer) usageText() string {
	counts := s.server.Counts()
	return fmt.Sprint(counts.Streams, counts.Names)
}

// startServer starts a server on a socket or an address.
func startServer(t *testing.T, address string, isOfNode func(netip.Addr) (bool, error)) *testServer {
	t.Helper()
	s := &testServer{testCluster: newSyncedCluster(), address: address, log: logs.New(t, "the server")}
	s.server = &Server{Table: s.table, IsLocalClient: isOfNode, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.server.Run(ctx, []string{address}) }) // never fails
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if got := s.usageText(); got != "0 0" {
			t.Errorf("after the end: %s streams and names, want 0 0", got)
		}
		if len(s.table.sessions)+len(s.table.watchers) > 0 {
			t.Errorf("after the end %d sessions remain", len(s.table.sessions))
		}
	})
	return s
}

func (s *testServer) socket(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

func open(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.WaitForReady(true))
	must.Succeed(t, err)
	return stream
}

func requestOf(k kind, nonce string, names ...string) []byte {
	var m message
	for _, name := range names {
		m = m.text(3, name)
	}
	return m.text(4, typeURLs[k]).text(5, nonce)
}

func receive(t *testing.T, stream grpc.ClientStream) receivedResponse {
	t.Helper()
	received := make(chan []byte, 1)
	go func() {
		var response []byte
		_ = stream.RecvMsg(&response) // without a response the wait fails
		received <- response
	}()
	return read(t, wait.Receive(t, "a response", received))
}

// receiveAndAck receives a response and acknowledges it.
func receiveAndAck(t *testing.T, stream grpc.ClientStream) receivedResponse {
	t.Helper()
	got := receive(t, stream)
	must.Succeed(t, stream.SendMsg(requestOf(got.resourceKind, got.nonce, got.names...)))
	return got
}

func allowAll(netip.Addr) (bool, error) { return true, nil }

func socketOf(t *testing.T) string {
	t.Helper()
	return SocketPrefix + filepath.Join(t.TempDir(), "run", "xds.sock")
}

func TestTheServerRespondsAndPushesUpdates(t *testing.T) {
	s := startServer(t, socketOf(t), allowAll)
	stream := open(t, s.socket(t))
	must.Succeed(t, stream.SendMsg(requestOf(assignments, "", web)))
	if got := receiveAndAck(t, stream); got.tiers != "1 3 (a, 2) | 2 (b, 1)" {
		t.Errorf("got %+v", got)
	}
	s.addService("web", "", []uint16{80}, "9@node-1/a")
	if got := receive(t, stream); got.tiers != "9 (a, 1)" {
		t.Errorf("got %+v", got)
	}
	wait.Equal(t, "streams and names", "1 1", s.usageText)
	must.Succeed(t, stream.CloseSend())
	wait.Equal(t, "streams and names", "0 0", s.usageText)
}

// atEachAddress runs a test over a unix socket, IPv4 and IPv6.
func atEachAddress(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("socket", func(t *testing.T) { test(t, socketOf(t)) })
	t.Run("IPv4", func(t *testing.T) { test(t, reserve.OnLoopback(t).String()) })
	t.Run("IPv6", func(t *testing.T) { test(t, reserve.At(t, netip.IPv6Loopback()).String()) })
}

// TestRejections: each rejection ends only its own stream, has a reason, and is counted.
func TestRejections(t *testing.T) { atEachAddress(t, testRejections) }

func testRejections(t *testing.T, address string) {
	s := startServer(t, address, allowAll)
	conn := s.socket(t)
	long, many := strings.Repeat("a", maxRequest), make([]string, maxNames+1)
	for i := range many {
		many[i] = fmt.Sprintf("w%d.s:80", i)
	}
	for why, test := range map[string]struct {
		request []byte
		code    codes.Code
		counted RejectReason
	}{
		"more names than allowed": {requestOf(listeners, "", many...), codes.ResourceExhausted, TooManyNames},
		"not a message":           {[]byte("\xff\xff\xff"), codes.InvalidArgument, MalformedRequest},
		"a truncated field":       {[]byte("\x1a\x7fweb"), codes.InvalidArgument, MalformedRequest},
		"a long name":             {requestOf(listeners, "", long[:maxNameLength+1]), codes.InvalidArgument, MalformedRequest},
		"a long request":          {requestOf(listeners, "", long), codes.ResourceExhausted, TooLargeRequest},
	} {
		before := s.count(string(test.counted))
		stream := open(t, conn)
		must.Succeed(t, stream.SendMsg(test.request))
		var response []byte
		if err := stream.RecvMsg(&response); status.Code(err) != test.code {
			t.Errorf("%s: %v, want %s", why, err, test.code)
		}
		// gRPC itself rejects a request that is too large, before the server gets it.
		wait.Equal(t, why+" is counted", before+1, func() int { return s.count(string(test.counted)) })
	}
	for _, why := range []RejectReason{TooManyNames, MalformedRequest, TooLargeRequest} {
		wait.Equal(t, string(why)+" is logged once for each client", 1, func() int { return s.log.Count("reason=" + string(why)) })
	}
	stream := open(t, conn)
	must.Succeed(t, stream.SendMsg(requestOf(assignments, "", web)))
	receive(t, stream)
}

// TestABoundedNumberOfStreams: a client that keeps opening streams gets an error, and others are still served.
func TestABoundedNumberOfStreams(t *testing.T) {
	t.Run("of one client", func(t *testing.T) {
		var usage usageTracker
		limited, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		admitted := 0
		for range maxStreams {
			if usage.admit(limited, usageCounts{openStreams: 1}) {
				admitted++
			}
		}
		if admitted != maxPerClient || !usage.admit(other, usageCounts{openStreams: 1}) {
			t.Errorf("%d streams are admitted", admitted)
		}
		if !usage.admit(limited, usageCounts{subscribedNames: maxClientNames}) || usage.admit(limited, usageCounts{subscribedNames: 1}) {
			t.Errorf("a client may subscribe to more than %d names, or not to that many", maxClientNames)
		}
		if !usage.admit(other, usageCounts{subscribedNames: 3}) {
			t.Error("another client was not admitted")
		}
		usage.release(limited, usageCounts{openStreams: 1})
		if !usage.admit(limited, usageCounts{openStreams: 1}) {
			t.Error("no stream is admitted after one was released")
		}
	})
	t.Run("in all", func(t *testing.T) {
		var usage usageTracker
		admitted := 0
		for i := range 2 * maxStreams {
			if usage.admit(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), usageCounts{openStreams: 1}) {
				admitted++
			}
		}
		if admitted != maxStreams {
			t.Errorf("%d streams are admitted", admitted)
		}
	})
}

// TestRemoteClientsAreRejected: a connection from another machine is closed at once, counted, and logged once.
func TestRemoteClientsAreRejected(t *testing.T) {
	address := reserve.OnLoopback(t).String()
	s := startServer(t, address, func(addr netip.Addr) (bool, error) {
		if addr == netip.MustParseAddr("127.0.0.2") {
			return false, errors.New("no route")
		}
		return true, nil
	})
	for i := range 3 {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		wait.Success(t, "the server listens", func() error {
			conn, err := dialer.Dial("tcp", address)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Error("a remote client receives data")
			}
			return nil
		})
		wait.Equal(t, "remote clients counted", i+1, func() int { return s.count(string(RemoteClient)) })
	}
	wait.Equal(t, "lines of log", 1, func() int { return strings.Count(s.log.String(), "reason=remote_client") })
	stream := open(t, s.socket(t))
	must.Succeed(t, stream.SendMsg(requestOf(assignments, "", web)))
	receive(t, stream)
}

// TestASocketIsRecreated, unless the path is something other than a socket.
func TestASocketIsRecreated(t *testing.T) {
	address := socketOf(t)
	path := strings.TrimPrefix(address, SocketPrefix)
	for range 2 {
		listener, err := listen(t.Context(), address)
		must.Succeed(t, err)
		info, err := os.Stat(path)
		must.Succeed(t, err)
		if info.Mode().Perm() != 0o666 {
			t.Errorf("the socket has mode %v", info.Mode())
		}
		folder, err := os.Stat(filepath.Dir(path))
		must.Succeed(t, err)
		if folder.Mode().Perm() != 0o755 {
			t.Errorf("its folder has mode %v", folder.Mode())
		}
		listener.(*net.UnixListener).SetUnlinkOnClose(false) // as a killed process leaves it
		must.Succeed(t, listener.Close())
	}
	must.Succeed(t, os.Remove(path))
	must.Succeed(t, os.WriteFile(path, []byte("precious"), 0o600))
	if _, err := listen(t.Context(), address); err == nil {
		t.Error("listen replaced a file that is not a socket")
	}
}

// TestUnresponsiveClientCostsOneMessage: such a client delays neither changes nor other clients.
func TestUnresponsiveClientCostsOneMessage(t *testing.T) { atEachAddress(t, testUnresponsive) }

func testUnresponsive(t *testing.T, address string) {
	s := startServer(t, address, allowAll)
	names := s.addLargeServices(20)
	unreadStreams := 15 // each leaves about 60 kB unread
	if strings.HasPrefix(address, SocketPrefix) {
		unreadStreams = 50
	}
	conn := s.socket(t)
	for range unreadStreams {
		must.Succeed(t, open(t, conn).SendMsg(requestOf(assignments, "", names...)))
	}
	readingStream := open(t, s.socket(t))
	must.Succeed(t, readingStream.SendMsg(requestOf(assignments, "", web)))
	receiveAndAck(t, readingStream)
	wait.Equal(t, "streams", fmt.Sprint(unreadStreams+1, " ", unreadStreams*20+1), s.usageText)
	before := heap()
	for i := range 500 {
		took := time.Now()
		s.addService("web", "", []uint16{80}, fmt.Sprintf("%d@node-1/a", 1+i%200))
		for k := range 20 {
			s.addService(fmt.Sprint("large-", k), "", []uint16{80}, fmt.Sprintf("%d@node-2/b", 251+i%2))
		}
		if i%50 > 0 {
			continue
		}
		if got := receiveAndAck(t, readingStream); got.names[0] != web {
			t.Errorf("got %+v", got)
		}
		if took := time.Since(took); took > 30*time.Second {
			t.Errorf("a change took %v", took)
		}
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("%d streams that do not read, and 10,000 changes, take %d kB", unreadStreams, grown>>10)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// FuzzParseRequest: any input is parsed or rejected.
func FuzzParseRequest(f *testing.F) {
	f.Add(requestOf(listeners, "1", web, cart))
	f.Add([]byte("\x32\x04\x12\x02no"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := parseRequest(text)
		if err != nil && !errors.Is(err, errMalformedRequest) && !errors.Is(err, errTooManyNames) && !errors.Is(err, errLongName) {
			t.Errorf("unexpected error: %v", err)
		}
		if err == nil && len(parsed.names) > maxNames {
			t.Errorf("%d names", len(parsed.names))
		}
		cluster := newSyncedCluster()
		session := cluster.newSession("")
		if err == nil {
			session.handleRequest(parsed)
			for range 5 {
				if _, response, _ := session.next(); response != nil {
					read(t, response)
				}
			}
		}
	})
}

// TestARejectionIsLoggedOnce checks that the log has one line, with the client's node ID.
func TestARejectionIsLoggedOnce(t *testing.T) {
	s := startServer(t, socketOf(t), allowAll)
	conn := s.socket(t)
	for range 3 {
		stream := open(t, conn)
		first := message(requestOf(assignments, "", web)).nested(2, func(m message) message { return m.text(1, "pod\n-1") })
		must.Succeed(t, stream.SendMsg([]byte(first)))
		nonce := receive(t, stream).nonce
		nack := message(requestOf(assignments, nonce, web)).nested(6, func(m message) message { return m.text(2, "I do\nnot like it") })
		must.Succeed(t, stream.SendMsg([]byte(nack)))
		must.Succeed(t, stream.SendMsg(requestOf(listeners, "", "typo.shop:80", "web")))
		receive(t, stream)
	}
	wait.Equal(t, "rejections counted", 3, func() int { return s.count("rejected EDS") })
	wait.Equal(t, "unknown names counted", 6, func() int { return s.count(string(UnknownName)) })
	log := s.log.String()
	for _, text := range []string{`I do\\nnot like it`, `nodeID=pod\n-1`, "typo.shop", "name=web "} {
		if strings.Count(log, text) < 1 {
			t.Errorf("the log does not contain %s", text)
		}
	}
	if lines := strings.Count(log, "\n"); lines != 4 {
		t.Errorf("the log has %d lines:\n%s", lines, log)
	}
}
