//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	kit "github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const xdsMetrics = "127.0.0.1:10549"

// TestWithoutXDSThereIsNoCost: without the flag the daemon has no listener, no goroutine and nothing on the heap
// for xDS. With it, and without clients, it needs less than 4 MiB more.
func TestWithoutXDSThereIsNoCost(t *testing.T) {
	folder := goodManifests(t)
	socket := filepath.Join(t.TempDir(), "xds.sock")
	start := func(flags ...string) *daemonUnderTest {
		return startDaemon(t, netns.New(t), append([]string{
			"--manifests", folder, "--own-tables", "never", "--profiling", "--metrics-bind-address", xdsMetrics,
		}, flags...)...)
	}
	off, on := start(), start("--xds-bind-address", "127.0.0.1:18000,unix://"+socket)
	defer func() { off.stop(t); on.stop(t) }()
	dump := func(d *daemonUnderTest, profile string) string {
		status, text := d.get(t, xdsMetrics, "/debug/pprof/"+profile)
		if status != 200 {
			t.Fatalf("%s: %d", profile, status)
		}
		return text
	}
	wait.Until(t, "the daemon listens at both addresses", func() bool {
		return slices.Contains(on.listening(t), "TCP port 18000") && slices.Contains(on.listening(t), socket)
	})
	var more []string
	for _, address := range on.listening(t) {
		if !slices.Contains(off.listening(t), address) {
			more = append(more, address)
		}
	}
	if want := []string{socket, "TCP port 18000"}; !slices.Equal(more, want) || len(off.listening(t)) != len(on.listening(t))-2 {
		t.Errorf("with the flag the daemon listens at %q, too, want %q", more, want)
	}
	for _, packagePath := range []string{"/proxy/serve/xds.", "google.golang.org/grpc."} {
		if goroutines := dump(off, "goroutine?debug=2"); strings.Contains(goroutines, packagePath) {
			t.Errorf("without the flag there is a goroutine of %s:\n%s", packagePath, goroutines)
		}
		if goroutines := dump(on, "goroutine?debug=2"); !strings.Contains(goroutines, packagePath) {
			t.Errorf("with the flag there is no goroutine of %s, so the test cannot detect any", packagePath)
		}
	}
	heap := func(d *daemonUnderTest) int {
		text := dump(d, "heap?gc=1&debug=1")
		if d == off && strings.Contains(text, "/proxy/serve/xds.") {
			t.Error("without the flag there are allocations of xDS on the heap")
		}
		_, rest, _ := strings.Cut(text, "# HeapAlloc = ")
		bytes, err := strconv.Atoi(strings.Fields(rest)[0])
		kit.Succeed(t, err)
		return bytes
	}
	without, with := heap(off), heap(on)
	t.Logf("heap without xDS %d kB, with it %d kB", without>>10, with>>10)
	if with-without > 4<<20 {
		t.Errorf("without clients xDS costs %d kB", (with-without)>>10)
	}
}

// listening returns the addresses at which a daemon listens, from the kernel's tables.
func (d *daemonUnderTest) listening(t *testing.T) []string {
	t.Helper()
	const listens = "0A"
	seen := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		d.forEachRow(t, table, func(fields []string) {
			if len(fields) > 3 && fields[3] == listens {
				_, port, _ := strings.Cut(fields[1], ":")
				number, err := strconv.ParseUint(port, 16, 16)
				kit.Succeed(t, err)
				seen[fmt.Sprintf("TCP port %d", number)] = true
			}
		})
	}
	d.forEachRow(t, "unix", func(fields []string) {
		if path := fields[len(fields)-1]; strings.HasPrefix(path, "/") {
			seen[path] = true
		}
	})
	return slices.Sorted(maps.Keys(seen)) // paths sort first
}

// forEachRow passes each row of a table in /proc/net of the daemon's namespace to a function.
func (d *daemonUnderTest) forEachRow(t *testing.T, table string, take func(fields []string)) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", d.process.Pid, table))
	kit.Succeed(t, err)
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 {
			take(fields)
		}
	}
}

// TestStatusShowsXDSClients checks that status shows how many names the clients subscribe to, rejected requests, and
// addresses without a listener, with the reason.
func TestStatusShowsXDSClients(t *testing.T) {
	namespace, folder := netns.New(t), goodManifests(t)
	socket := filepath.Join(t.TempDir(), "xds.sock")
	const at = "--metrics-bind-address=" + xdsMetrics
	args := []string{"--manifests", folder, "--own-tables", "never", at}
	plain := startDaemon(t, namespace, args...)
	if node, _ := nodeStatusIn(t, namespace, at); node.Proxy == nil || node.Proxy.XDS != nil {
		t.Errorf("without the flag the summary has xDS: %+v", node.Proxy)
	}
	if text := statusIn(t, namespace, at).stdout; strings.Contains(text, "xDS") {
		t.Errorf("without the flag the status has a line about xDS:\n%s", text)
	}
	plain.stop(t)

	var taken net.Listener
	var err error
	namespace.Do(func() { taken, err = net.Listen("tcp", "127.0.0.1:18001") })
	kit.Succeed(t, err)
	defer func() { _ = taken.Close() }()
	addresses := "--xds-bind-address=127.0.0.1:18000,127.0.0.1:18001,unix://" + socket
	daemon := startDaemon(t, namespace, append(args, addresses)...)
	defer func() { daemon.stop(t) }()
	dial := func(_ context.Context, address string) (conn net.Conn, err error) {
		namespace.Do(func() { conn, err = net.Dial("tcp", address) })
		return conn, err
	}
	name, typo := "web.shop.svc.cluster.local:80", "wep.shop:80"
	byPort := openXDS(t, "passthrough:///127.0.0.1:18000", grpc.WithContextDialer(dial))
	kit.Succeed(t, byPort.SendMsg(xdsRequest(name, typo)))
	bySocket := openXDS(t, "unix://"+socket)
	kit.Succeed(t, bySocket.SendMsg(xdsRequest(name)))
	malformed := openXDS(t, "unix://"+socket)
	kit.Succeed(t, malformed.SendMsg([]byte{0xff}))
	wait.Success(t, "the page /summary", func() error {
		node, _ := nodeStatusIn(t, namespace, at)
		got := fmt.Sprintf("%+v", *node.Proxy.XDS)
		for _, want := range []string{
			"{Address:127.0.0.1:18000 Error:}", "{Address:127.0.0.1:18001 Error:listen on --xds-bind-address",
			"{Address:unix://" + socket + " Error:}", "{Address: Streams:1 Names:1", "{Address:127.0.0.1 Streams:1 Names:2",
			"Streams:2 Names:3", "Rejected:map[malformed_request:1]", "UnknownNames:1", "RejectedResponses:0",
		} {
			if !strings.Contains(got, want) {
				return fmt.Errorf("%s lacks %s", got, want)
			}
		}
		return nil
	})
	text := statusIn(t, namespace, at).stdout
	for _, want := range []string{
		"served at 127.0.0.1:18000\n", "not served at 127.0.0.1:18001: ", "clients: 2, streams: 2, names: 3",
		"127.0.0.1: streams: 1, names: 2", "all clients of the socket: streams: 1, names: 1",
		"since the start: rejected: 1 (malformed_request 1); unknown names: 1; responses that clients rejected: 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	t.Log(text)
}

// openXDS opens an xDS stream whose messages are raw bytes.
func openXDS(t *testing.T, target string, options ...grpc.DialOption) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))...)
	kit.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources", grpc.WaitForReady(true))
	kit.Succeed(t, err)
	return stream
}

// rawCodec is a codec that does not change messages.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }

// xdsRequest returns an encoded DiscoveryRequest for the endpoints of some names.
func xdsRequest(names ...string) []byte {
	var m []byte
	for _, name := range names {
		m = protowire.AppendString(protowire.AppendTag(m, 3, protowire.BytesType), name)
	}
	return protowire.AppendString(protowire.AppendTag(m, 4, protowire.BytesType),
		"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment")
}
