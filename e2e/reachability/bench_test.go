package reachability_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

const (
	// idleServices is the number of Services, with ten endpoints each, on idleNodes other nodes.
	idleServices, idleNodes = 10_000, 100
	// quietTime is the time without an unreplied connection after which scans become rarer, measureTime the duration of
	// a measurement.
	quietTime, measureTime = 65 * time.Second, 30 * time.Second
)

// BenchmarkIdle measures the cost of failure detection on an idle node: whole daemons on one CPU, one with failure
// detection and one without, at the same time. Conntrack entries stand for open connections.
func BenchmarkIdle(b *testing.B) {
	network := fabrictest.New(b)
	manifests := b.TempDir()
	writeIdle(b, manifests)
	daemons := []*idleDaemon{newIdleDaemon(b, network, manifests, "off"), newIdleDaemon(b, network, manifests, "enforce")}
	for b.Loop() {
		for _, d := range daemons {
			d.process.Log.WaitFor(b, "the first sync is in the kernel")
		}
		fmt.Printf("\nTen thousand Services, a daemon on one CPU, %v idle; memory is VmRSS\n", measureTime)
		time.Sleep(quietTime)
		for _, d := range daemons {
			fmt.Printf("%-8s %8s of memory\n", d.mode, strings.TrimSpace(d.proc(b, "status", "VmRSS:")))
		}
		entries := 0
		for _, more := range []int{0, 10_000, 90_000} {
			entries += more
			measureIdle(b, daemons, more, true, fmt.Sprintf("%d open connections", entries))
		}
		measureIdle(b, daemons, 1, false, "the same, and one unreplied")
	}
}

func measureIdle(b *testing.B, daemons []*idleDaemon, more int, areReplied bool, name string) {
	b.Helper()
	before := map[*idleDaemon]time.Duration{}
	for _, d := range daemons {
		d.insert(b, more, areReplied)
	}
	time.Sleep(2 * time.Second)
	for _, d := range daemons {
		before[d] = d.cpuTime(b)
	}
	time.Sleep(measureTime)
	for _, d := range daemons {
		used := d.cpuTime(b) - before[d]
		fmt.Printf("%-8s %5.2f %% of a core: %s\n", d.mode, 100*used.Seconds()/measureTime.Seconds(), name)
	}
}

// idleDaemon is a proxy on its own node.
type idleDaemon struct {
	mode     string
	process  *site.Process
	node     *fabric.Node
	table    *connections.Table
	inserted int
}

func newIdleDaemon(b *testing.B, network *fabric.Fabric, manifests, mode string) *idleDaemon {
	b.Helper()
	node, err := network.AddNode(mode)
	must.Succeed(b, err)
	d := &idleDaemon{mode: mode, node: node}
	d.process = site.Start(b, node.Namespace, exec.Command("taskset", "--cpu-list", "0", site.Program(b, "proxy"), "run",
		"--node", "node-0", "--manifests", manifests, "--cluster-cidr", fabric.PodsIPv4.String(), "--unreachable-node-mode", mode))
	must.Succeed(b, node.Do(func() (err error) {
		d.table, err = connections.OpenCurrent(b)
		return err
	}))
	return d
}

// insert inserts connections to the first Service into the node's conntrack table.
func (d *idleDaemon) insert(b *testing.B, count int, areReplied bool) {
	b.Helper()
	for range count {
		i := d.inserted
		d.inserted++
		c := connections.Connection{
			Protocol: model.TCP, OrigDst: netip.AddrPortFrom(idleAddr(96, 0), 80), ReplySrc: netip.AddrPortFrom(idleAddr(244, 0), 8080),
			OrigSrc: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 245, byte(i >> 22), byte(i >> 14)}), uint16(1024+i&0x3fff)),
			State:   conntrack.TCPSynSent, Label: ruleset.TranslatedLabel, IsReplied: areReplied,
		}
		if areReplied {
			c.State = conntrack.TCPEstablished
		}
		must.Succeed(b, d.table.TryInsert(c))
	}
}

func (d *idleDaemon) cpuTime(b *testing.B) time.Duration {
	b.Helper()
	text := d.proc(b, "stat", ") ")
	fields := strings.Fields(text) // of proc(5), starting at the third field
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		must.Succeed(b, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// proc returns the rest of the line after a mark in a file of proc(5).
func (d *idleDaemon) proc(b *testing.B, file, mark string) string {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", d.process.PID(), file))
	must.Succeed(b, err)
	_, rest, found := strings.Cut(string(text), mark)
	if !found {
		b.Fatalf("%s of the proxy has no %q", file, mark)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

func idleAddr(second, number int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(second), byte(number >> 8), byte(number)}).Next()
}

// writeIdle writes the Services and unreachable Nodes.
func writeIdle(b *testing.B, folder string) {
	b.Helper()
	var objects strings.Builder
	for i := range idleNodes {
		fmt.Fprintf(&objects, nodeManifest, fmt.Sprint("node-", i), i%3, idleAddr(200, i), "fd00:99::"+strconv.Itoa(i+1))
	}
	for i := range idleServices {
		fmt.Fprintf(&objects, idleManifest, i, idleAddr(96, i))
		for j := range 10 {
			fmt.Fprintf(&objects, endpointManifest, idleAddr(244, (i*10+j)%60_000), fmt.Sprint("node-", (i*10+j)%idleNodes))
		}
		objects.WriteString("---\n")
	}
	must.Succeed(b, os.WriteFile(filepath.Join(folder, "all.yaml"), []byte(objects.String()), 0o600))
}

const idleManifest = `apiVersion: v1
kind: Service
metadata: {name: web-%[1]d, namespace: default}
spec:
  clusterIP: %[2]s
  clusterIPs: [%[2]s]
  ports:
  - {name: tcp, protocol: TCP, port: 80}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[1]d, namespace: default, labels: {kubernetes.io/service-name: web-%[1]d}}
addressType: IPv4
ports:
- {name: tcp, protocol: TCP, port: 8080}
endpoints:
`
