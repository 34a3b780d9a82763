package xds

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The documented bounds in manifests/xds/README.md: the memory for all clients of a node in MiB, and the limits of each
// client.
const (
	maxMemory        = 1024
	maxClients       = 64
	streamsPerClient = 64
	namesPerClient   = 3000
)

// TestAllClientsTogetherHaveABound opens all streams that are possible, from clients at 64 addresses, each on a
// connection of its own. Each stream subscribes to as many names as its client may, reads no response, and starts a
// request of the maximum size without ending it.
func TestAllClientsTogetherHaveABound(t *testing.T) {
	server := ourServerCommand(t)
	updates, _ := startPiped(t, server)
	encoder := json.NewEncoder(updates)
	const services = 1000
	domain := ".shop.svc.cluster.local:80"
	nameOf := func(i int) string { return fmt.Sprintf("web-%d", i) }
	for i := range services {
		one := updateOf(i, nameOf(i)+".shop:80", 80)
		for e := range 240 { // so that a response of some 60 kB has few Services
			one.Addrs = append(one.Addrs, fmt.Sprintf("10.%d.%d.%d", 11+e, i>>8, i&255))
		}
		must.Succeed(t, encoder.Encode(one))
	}
	address := reserve.OnLoopback(t).String()
	must.Succeed(t, encoder.Encode(update{Listen: address}))
	wait.Success(t, "the server listens", func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	time.Sleep(time.Second)
	before := memoryOf(t, server.Process.Pid)
	var attack sync.WaitGroup
	for client := range maxClients {
		attack.Go(func() {
			for stream := range streamsPerClient {
				var names []string
				for i := range namesPerClient / streamsPerClient {
					names = append(names, nameOf((client*7+stream*namesPerClient/streamsPerClient+i)%services)+domain)
				}
				if err := openGreedyStream(t, address, netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + client)}), names); err != nil {
					t.Errorf("client %d, stream %d: %v", client, stream, err)
					return
				}
			}
		})
	}
	attack.Wait()
	time.Sleep(3 * time.Second)
	after := memoryOf(t, server.Process.Pid)
	t.Logf("%d streams at their limits use %.0f MiB; the server used %.0f before", maxClients*streamsPerClient, after-before, before)
	if after-before > maxMemory {
		t.Errorf("%.0f MiB, want at most %d", after-before, maxMemory)
	}
	conn, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	defer func() { _ = conn.Close() }()
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a connection beyond the limit is served")
	}
}

// openGreedyStream opens a stream without a client library, on a connection of its own that stays open until the test
// ends, and reads nothing.
func openGreedyStream(t *testing.T, server string, from netip.Addr, names []string) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	conn, err := dialer.Dial("tcp", server)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, nil)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return err
	}
	var fields strings.Builder
	encoder := hpack.NewEncoder(&fields)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", adsMethod}, {":authority", "xds"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return err
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(fields.String()), EndHeaders: true}); err != nil {
		return err
	}
	request := requestOf(assignmentType, "", names...)
	head := []byte{0, 0, 0, byte(len(request) >> 8), byte(len(request) & 0xff)}
	if err := framer.WriteData(1, false, append(head, request...)); err != nil {
		return err
	}
	const longest = 64<<10 - 1
	if err := framer.WriteData(1, false, []byte{0, 0, byte(longest >> 16), byte(longest >> 8 & 0xff), byte(longest & 0xff)}); err != nil {
		return err
	}
	for range 6 {
		if err := framer.WriteData(1, false, make([]byte, 10<<10)); err != nil {
			return err
		}
	}
	return nil
}
