package xds

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/xds"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// The load: the number of streams, names per stream, Services, and endpoints per Service; the rate of changes and the
// duration.
const (
	manyStreams      = 1000
	manyConnections  = 100
	namesPerStream   = 10
	manyServices     = 1000
	manyEndpoints    = 10
	changesPerSecond = 100
	loadTime         = 10 * time.Second
)

// serverEnv makes this test binary act as a server with the same input as go-control-plane's.
const serverEnv = "VICINITY_TEST_XDS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) == "" {
		os.Exit(m.Run())
	}
	if err := serveUpdates(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// update has the format of update in e2e/lab/build/xds/cache.go.
type update struct {
	Name   string   `json:"name,omitempty"`
	Addrs  []string `json:"addrs,omitempty"`
	Port   uint32   `json:"port,omitempty"`
	Listen string   `json:"listen,omitempty"`
}

// serveUpdates runs a table and a server, and makes the decisions that a proxy makes before it fills the table.
func serveUpdates(input io.Reader) error {
	var s *fixture
	decoder := json.NewDecoder(input)
	created := newServerlessFixture()
	for {
		var next update
		if err := decoder.Decode(&next); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if next.Name == "" {
			s = created
			s.address = next.Listen
			s.start()
			s.completeSync()
			continue
		}
		service := webService()
		service.Name.Name, _, _ = strings.Cut(next.Name, ".")
		i, err := strconv.Atoi(strings.TrimPrefix(service.Name.Name, "web-"))
		if err != nil {
			return err
		}
		service.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})}
		slice := &model.EndpointSlice{
			Name: service.Name, Service: service.Name, Ports: []model.SlicePort{{Protocol: model.TCP, Port: uint16(next.Port)}},
		}
		for _, addr := range next.Addrs {
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr: netip.MustParseAddr(addr), Endpoint: model.Endpoint{Node: "node-1", Zone: "a", Ready: true, Serving: true},
			})
		}
		created.apply(model.Change{
			Services: map[model.ObjectName]*model.Service{service.Name: service},
			Slices:   map[model.ObjectName]*model.EndpointSlice{slice.Name: slice},
		})
	}
}

// BenchmarkManyStreams makes many streams receive changes, from our server and from go-control-plane's.
func BenchmarkManyStreams(b *testing.B) {
	built, err := programs()
	must.Succeed(b, err)
	controlPlaneServer := func() *exec.Cmd { return exec.Command(built.Path(binaries.XDS, "xds"), "cache") }
	for name, server := range map[string]func() *exec.Cmd{"vicinity": func() *exec.Cmd { return ourServerCommand(b) },
		"go-control-plane": controlPlaneServer} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				benchmarkManyStreams(b, server(), exec.Command(built.Path(binaries.XDS, "xds"), "streams"))
			}
		})
	}
}

// ourServerCommand returns the command that runs our server as a separate process.
func ourServerCommand(t testing.TB) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must.Succeed(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	return cmd
}

func benchmarkManyStreams(b *testing.B, server, watchers *exec.Cmd) {
	socket := xds.SocketPrefix + filepath.Join(b.TempDir(), "xds.sock")
	updates, _ := startPiped(b, server)
	encoder := json.NewEncoder(updates)
	names := make([]string, manyServices)
	for i := range names {
		names[i] = fmt.Sprintf("web-%d.shop:80", i)
		must.Succeed(b, encoder.Encode(updateOf(i, names[i], 1)))
	}
	must.Succeed(b, encoder.Encode(update{Listen: socket}))
	streams := make([][]string, manyStreams)
	for i := range streams {
		for k := range namesPerStream {
			streams[i] = append(streams[i], names[(i*namesPerStream+k*97)%manyServices])
		}
	}
	waitForSocket(b, strings.TrimPrefix(socket, xds.SocketPrefix))
	before := memoryOf(b, server.Process.Pid)
	input, output := startPiped(b, watchers)
	must.Succeed(b, json.NewEncoder(input).Encode(map[string]any{"server": socket, "connections": manyConnections, "streams": streams}))
	decoder := json.NewDecoder(bufio.NewReader(output))
	var ready int
	must.Succeed(b, decoder.Decode(&ready))

	cpu, memory := cpuOf(b, server.Process.Pid), memoryOf(b, server.Process.Pid)
	sent := map[uint32]time.Time{}
	pace := time.NewTicker(time.Second / changesPerSecond)
	defer pace.Stop()
	began := time.Now()
	for port := uint32(2); time.Since(began) < loadTime; port++ {
		<-pace.C
		i := int(port*31) % manyServices
		sent[port] = time.Now()
		must.Succeed(b, encoder.Encode(updateOf(i, names[i], port)))
	}
	time.Sleep(time.Second)
	took := time.Since(began)
	used := cpuOf(b, server.Process.Pid) - cpu
	after := memoryOf(b, server.Process.Pid)
	must.Succeed(b, input.Close())
	delays := arrivals(b, decoder, sent)
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds())/1000, "ms-p99")
	b.ReportMetric(used.Seconds()/took.Seconds(), "cores")
	b.ReportMetric(before, "MiB-before")
	b.ReportMetric(memory, "MiB-at-first")
	b.ReportMetric(after, "MiB-at-last")
	must.Succeed(b, updates.Close())
}

func updateOf(i int, name string, port uint32) update {
	next := update{Name: name, Port: port}
	for e := range manyEndpoints {
		next.Addrs = append(next.Addrs, fmt.Sprintf("10.%d.%d.%d", 1+e, i>>8, i&255))
	}
	return next
}

// arrivals returns, sorted, the times that the changes took to reach the last stream.
func arrivals(b *testing.B, decoder *json.Decoder, sent map[uint32]time.Time) []time.Duration {
	b.Helper()
	var delays []time.Duration
	for decoder.More() {
		var one struct {
			Port    uint32
			Streams int
			Last    int64
		}
		must.Succeed(b, decoder.Decode(&one))
		if sentAt, ok := sent[one.Port]; ok {
			delays = append(delays, time.Unix(0, one.Last).Sub(sentAt))
		}
	}
	if len(delays) < len(sent)*9/10 {
		b.Errorf("%d of %d changes arrived, want at least nine tenths", len(delays), len(sent))
	}
	slices.Sort(delays)
	return delays
}

// startPiped starts a program that ends when its input does.
func startPiped(b testing.TB, cmd *exec.Cmd) (io.WriteCloser, io.Reader) {
	b.Helper()
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	must.Succeed(b, err)
	output, err := cmd.StdoutPipe()
	must.Succeed(b, err)
	must.Succeed(b, cmd.Start())
	b.Cleanup(func() {
		_ = input.Close() // usually it is already closed
		_ = cmd.Wait()    // the benchmark has already noticed failures
	})
	return input, output
}

func waitForSocket(b testing.TB, path string) {
	b.Helper()
	for range 1000 {
		if _, err := os.Stat(path); err == nil {
			time.Sleep(time.Second) // garbage of the start is collected
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Fatal("the server is not listening")
}

// memoryOf returns the resident memory of a process in MiB.
func memoryOf(b testing.TB, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must.Succeed(b, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	must.Succeed(b, err)
	return float64(kilobytes) / 1024
}

// cpuOf returns the CPU time that a process has used.
func cpuOf(b testing.TB, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must.Succeed(b, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	must.Succeed(b, err)
	system, err := strconv.Atoi(fields[12])
	must.Succeed(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}
