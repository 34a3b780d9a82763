package xds

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestReconnectsLeaveNothingBehind: after 10,000 connections, half of which start to speak HTTP/2, the process has as
// many files and goroutines as before, and a client is served.
func TestReconnectsLeaveNothingBehind(t *testing.T) { atEachAddress(t, testReconnects) }

func testReconnects(t *testing.T, address string) {
	s := startServer(t, address, allowAll)
	conn := s.socket(t)
	stream := open(t, conn)
	must.Succeed(t, stream.SendMsg(requestOf(assignments, "", web)))
	receiveAndAck(t, stream)
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for i := range 10_000 {
		other := dial(t, address)
		if i%2 == 0 {
			_, _ = other.Write([]byte(preface)) // the server may have closed it
		}
		must.Succeed(t, other.Close())
	}
	wait.Success(t, "as many files and goroutines as before", func() error {
		if filesNow, goroutinesNow := openFiles(t), runtime.NumGoroutine(); filesNow > files+2 || goroutinesNow > goroutines+5 {
			return fmt.Errorf("%d files, %d before; %d goroutines, %d before", filesNow, files, goroutinesNow, goroutines)
		}
		return nil
	})
	s.addService("web", "", []uint16{80}, "9@node-1/a")
	if got := receive(t, stream); got.tiers != "9 (a, 1)" {
		t.Errorf("got %+v", got)
	}
}

// dial connects to an address. It waits for room in a socket's queue: connect(2) returns EAGAIN while there is none.
func dial(t *testing.T, address string) (conn net.Conn) {
	t.Helper()
	network := "tcp"
	path, isSocket := strings.CutPrefix(address, SocketPrefix)
	if isSocket {
		network = "unix"
	}
	wait.Success(t, "room in the socket's queue", func() (err error) {
		if conn, err = net.Dial(network, path); err != nil && !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
		return err
	})
	return conn
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	must.Succeed(t, err)
	return len(files)
}

// TestNamesWithOddBytesGetNoResource: the stream continues, and valid names get their resources.
func TestNamesWithOddBytesGetNoResource(t *testing.T) {
	s := startServer(t, socketOf(t), allowAll)
	stream := open(t, s.socket(t))
	oddNames := []string{
		"\x00", "web\x00.shop:80", "web.shop:80\n", "\xff\xfe.shop:80", "web.shop:-1", "web.shop:080808", "outbound|80||", "..:80",
	}
	must.Succeed(t, stream.SendMsg(requestOf(assignments, "", append(oddNames, web)...)))
	if got := receiveAndAck(t, stream); len(got.names) != 1 || got.names[0] != web {
		t.Errorf("got %+v", got)
	}
	wait.Equal(t, "names counted as unknown", len(oddNames), func() int { return s.count(string(UnknownName)) })
}
