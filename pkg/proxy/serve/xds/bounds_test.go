package xds

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestStreamsOfAClientAreLimited: a limited number of one client's streams is served. Further ones get the reason for their
// rejection, and when some streams end, new ones are served.
func TestStreamsOfAClientAreLimited(t *testing.T) { atEachAddress(t, testStreams) }

func testStreams(t *testing.T, address string) {
	s := startServer(t, address, allowAll)
	limit := maxPerClient
	if strings.HasPrefix(address, SocketPrefix) {
		limit = maxPerSocket
	}
	conn := s.socket(t)
	other := s.socket(t) // on one connection gRPC itself would delay further streams
	served := open(t, conn)
	must.Succeed(t, served.SendMsg(requestOf(assignments, "", web)))
	receiveAndAck(t, served)
	for range limit - 1 {
		open(t, conn)
	}
	wait.Equal(t, "streams and names", fmt.Sprint(limit, " 1"), s.usageText)
	const excess = 20
	for range excess {
		var response []byte
		if err := open(t, other).RecvMsg(&response); status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("stream beyond the limit of %d: %v", limit, err)
		}
	}
	if got := s.count(string(TooManyStreams)); got != excess {
		t.Errorf("%d streams are counted as rejected, want %d", got, excess)
	}
	s.addService("web", "", []uint16{80}, "9@node-1/a")
	if got := receiveAndAck(t, served); got.tiers != "9 (a, 1)" {
		t.Errorf("got %+v", got)
	}
	must.Succeed(t, conn.Close())
	wait.Equal(t, "streams and names", "0 0", s.usageText)
	again := open(t, other)
	must.Succeed(t, again.SendMsg(requestOf(assignments, "", web)))
	receive(t, again)
}

// TestIncompleteRequestsCostTheirSize: a client starts a request on each of its streams, each as large as allowed, and
// completes none.
func TestIncompleteRequestsCostTheirSize(t *testing.T) { atEachAddress(t, testIncompleteRequests) }

func testIncompleteRequests(t *testing.T, address string) {
	s := startServer(t, address, allowAll)
	stream := open(t, s.socket(t))
	must.Succeed(t, stream.SendMsg(requestOf(assignments, "", web)))
	receiveAndAck(t, stream)
	before := heap()
	const streams = maxPerClient - 1
	for range streams {
		r := dialRaw(t, address)
		r.open(1, web)
		r.beginRequest(1)
	}
	wait.Equal(t, "streams and names", fmt.Sprint(streams+1, " ", streams+1), s.usageText)
	if grown := heap() - before; grown > streams*256<<10 {
		t.Errorf("%d incomplete requests take %d kB", streams, grown>>10)
	} else {
		t.Logf("a stream with an incomplete request takes %d kB, including its connection", grown>>10/streams)
	}
	s.addService("web", "", []uint16{80}, "9@node-1/a")
	if got := receive(t, stream); got.tiers != "9 (a, 1)" {
		t.Errorf("got %+v", got)
	}
}

// rawClient is a client that speaks HTTP/2 by hand, with a flow-control window of its choice for responses.
type rawClient struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	fields strings.Builder
	hpack  *hpack.Encoder
}

func dialRaw(t *testing.T, address string, settings ...http2.Setting) *rawClient {
	t.Helper()
	r := &rawClient{t: t, conn: dial(t, address)}
	t.Cleanup(func() { _ = r.conn.Close() })
	go func() { _, _ = io.Copy(io.Discard, r.conn) }() // until the connection is closed
	_, err := io.WriteString(r.conn, http2.ClientPreface)
	must.Succeed(t, err)
	r.framer, r.hpack = http2.NewFramer(r.conn, nil), hpack.NewEncoder(&r.fields)
	must.Succeed(t, r.framer.WriteSettings(settings...))
	return r
}

// open opens a stream and subscribes to names. It reports whether the server still accepts data.
func (r *rawClient) open(stream uint32, names ...string) bool {
	r.t.Helper()
	r.fields.Reset()
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "xds"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		must.Succeed(r.t, r.hpack.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	if r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(r.fields.String()), EndHeaders: true}) != nil {
		return false
	}
	request := requestOf(assignments, "", names...)
	head := []byte{0, 0, 0, byte(len(request) >> 8), byte(len(request) & 0xff)}
	return r.framer.WriteData(stream, false, append(head, request...)) == nil
}

// beginRequest sends as much of a long request as the server accepts, but not its end.
func (r *rawClient) beginRequest(stream uint32) {
	r.t.Helper()
	const long = maxRequest - 1
	must.Succeed(r.t, r.framer.WriteData(stream, false, []byte{0, 0, byte(long >> 16), byte(long >> 8 & 0xff), byte(long & 0xff)}))
	for range 3 {
		must.Succeed(r.t, r.framer.WriteData(stream, false, make([]byte, 16<<10)))
	}
	must.Succeed(r.t, r.framer.WriteData(stream, false, make([]byte, 14<<10)))
}

// addLargeServices adds Services with 250 endpoints each, and returns their names.
func (s *testServer) addLargeServices(services int) []string {
	var endpoints strings.Builder
	for i := range 250 {
		fmt.Fprintf(&endpoints, "%d@node-1/a ", i)
	}
	var names []string
	for i := range services {
		name := fmt.Sprint("large-", i)
		s.addService(name, "", []uint16{80}, endpoints.String())
		names = append(names, name+".shop:80")
	}
	return names
}

// TestStreamsThatEndUnackedLeaveNothingBehind: a client repeatedly opens a stream with a zero window, subscribes, and
// ends the stream. gRPC keeps a response until it can be sent, even if the stream has ended.
func TestStreamsThatEndUnackedLeaveNothingBehind(t *testing.T) { atEachAddress(t, testUnreadEnds) }

func testUnreadEnds(t *testing.T, address string) {
	s := startServer(t, address, allowAll)
	names := s.addLargeServices(20)
	before := heap()
	const streams = 400
	r, stream := (*rawClient)(nil), uint32(1)
	for range streams {
		sentBefore := s.count("answered EDS")
		if r == nil || !r.open(stream, names...) {
			r, stream = dialRaw(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), 1
			r.open(stream, names...)
		}
		for range 20 { // the connection may be closed in the meantime
			if s.count("answered EDS") > sentBefore {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = r.framer.WriteData(stream, true, nil) // the connection may be closed
		stream += 2
	}
	wait.Success(t, "memory within the limit of unread bytes", func() error {
		if grown := heap() - before; grown > 8<<20 {
			return fmt.Errorf("%d streams that ended unread take %d kB", streams, grown>>10)
		}
		return nil
	})
	if sent := s.count("answered EDS"); sent < streams/4 {
		t.Errorf("only %d responses were sent, too few for this test", sent)
	}
}
