package accounting_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// busySetup is a node with clients that make short connections to another node, each to its own server.
type busySetup struct {
	*setup
	proxy      *site.Process
	generators []*loadGenerator
	dialTime   time.Duration
}

func newBusySetup(b *testing.B, generators int, flags ...string) *busySetup {
	b.Helper()
	s := &busySetup{setup: newSetup(b)}
	for i := range generators {
		server := s.addPod(s.otherZone, fmt.Sprint("server-", i))
		s.add(fmt.Sprint("loaded-", i), allKeys, endpoint{pod: server}).port = loadPort
		s.generators = append(s.generators, newLoadGenerator(b, s.addPod(s.local, fmt.Sprint("client-", i)), server))
	}
	s.write()
	must.Succeed(b, s.local.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_close", "1"))
	s.proxy = s.start(s.local, s.command(s.local, flags...))
	wait.Until(b, "a listener for destroy events", func() bool { return s.hasDestroyListener(s.local) == (flags != nil) })
	return s
}

// dial makes the given number of connections from each load generator, as fast as possible if perSecond is 0.
func (s *busySetup) dial(perGenerator, perSecond int) {
	began := time.Now()
	var dialling sync.WaitGroup
	for i, g := range s.generators {
		dialling.Go(func() { g.dial(s.services[i].clusterIP(model.IPv4), perGenerator, perSecond) })
	}
	dialling.Wait()
	s.dialTime += time.Since(began)
}

// cpuTime returns the CPU time that a program has used: utime and stime of proc(5), in hundredths of a second.
func cpuTime(b *testing.B, process *site.Process) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.PID()))
	must.Succeed(b, err)
	fields := strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:])) // starting at the third field
	var ticks int64
	for _, field := range fields[11:13] {
		number, err := strconv.ParseInt(field, 10, 64)
		must.Succeed(b, err)
		ticks += number
	}
	return time.Duration(ticks) * time.Second / 100
}

// BenchmarkConnect compares connections on a node that counts traffic with those on one that does not, in short
// alternating rounds, so that other load on the machine affects both alike.
func BenchmarkConnect(b *testing.B) {
	const rounds, perRound = 60, 500
	setups := [2]*busySetup{newBusySetup(b, 1), newBusySetup(b, 1, "--traffic-accounting", "services")}
	for b.Loop() {
		for round := range rounds {
			for i := range setups {
				setups[(round+i)%2].dial(perRound, 0)
			}
		}
	}
	without, with := setups[0].generators[0], setups[1].generators[0]
	slices.Sort(without.latencies)
	slices.Sort(with.latencies)
	for _, quantile := range []struct {
		name    string
		percent int
	}{{"p50", 50}, {"p99", 99}} {
		off, on := without.latencies[len(without.latencies)*quantile.percent/100], with.latencies[len(with.latencies)*quantile.percent/100]
		b.ReportMetric(float64(off.Nanoseconds())/1000, quantile.name+"-off-µs")
		b.ReportMetric(float64(on.Nanoseconds())/1000, quantile.name+"-on-µs")
		b.ReportMetric(float64(on)/float64(off), quantile.name+"-ratio")
	}
	b.ReportMetric(float64(len(without.latencies))/setups[0].dialTime.Seconds(), "off/s")
	b.ReportMetric(float64(len(with.latencies))/setups[1].dialTime.Seconds(), "on/s")
}

// BenchmarkCPU measures the CPU time of a proxy that reads destroy events.
func BenchmarkCPU(b *testing.B) {
	const seconds, generators = 5, 2
	for _, perSecond := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(perSecond), func(b *testing.B) {
			s := newBusySetup(b, generators, "--traffic-accounting", "services")
			var used, elapsed time.Duration
			made, lost := uint64(0), uint64(0)
			for b.Loop() {
				before, dialTime := cpuTime(b, s.proxy), s.dialTime
				s.dial(perSecond*seconds/generators, perSecond/generators)
				made += uint64(perSecond * seconds)
				wait.Until(b, "the connections, or an overrun", func() bool {
					lost = s.total(s.local, "vicinity_accounting_not_counted_total")
					return lost > 0 || s.total(s.local, "vicinity_connections_total") == made
				})
				used += cpuTime(b, s.proxy) - before
				elapsed += s.dialTime - dialTime
			}
			// On a busy machine the proxy may read too late and lose events. The rates below then cover only the events that
			// it read.
			b.ReportMetric(float64(lost), "lost-events")
			b.ReportMetric(float64(made)/elapsed.Seconds(), "connections/s")
			b.ReportMetric(100*used.Seconds()/elapsed.Seconds(), "%-of-a-core")
			b.ReportMetric(float64(used.Nanoseconds())/float64(made)/1000, "µs/connection")
		})
	}
}

// BenchmarkKernel measures the kernel's time for deleting an entry, with a listener for destroy events and without.
func BenchmarkKernel(b *testing.B) {
	const entryCount = 100_000
	for _, flags := range [][]string{nil, {"--traffic-accounting", "services"}} {
		b.Run("account="+strconv.FormatBool(flags != nil), func(b *testing.B) {
			s := newBusySetup(b, 1, flags...)
			bursts := bursts{setup: s.setup, service: s.services[0], server: s.generators[0].server}
			must.Succeed(b, s.local.Do(func() (err error) { bursts.table, err = connections.OpenCurrent(b); return err }))
			fastest := time.Hour
			for b.Loop() {
				bursts.fill(entryCount)
				began := time.Now()
				must.Succeed(b, bursts.table.Flush(model.IPv6))
				fastest = min(fastest, time.Since(began))
			}
			b.ReportMetric(float64(fastest.Nanoseconds())/entryCount/1000, "µs/entry")
		})
	}
}

// BenchmarkMemory measures the proxy's memory while it tracks 100,000 connections that another program translated. They
// lack our label and need no traffic.
func BenchmarkMemory(b *testing.B) {
	const connectionCount = 100_000
	for b.Loop() {
		s := newSetup(b)
		s.add("web", allKeys, endpoint{pod: s.addPod(s.otherZone, "server")})
		s.write()
		proxy := s.startCounting(s.local)
		proxy.Log.WaitFor(b, "started to count connections")
		before := residentMemory(b, proxy)
		must.Succeed(b, proxy.Stop(time.Minute))
		var table *connections.Table
		must.Succeed(b, s.local.Do(func() (err error) { table, err = connections.OpenCurrent(b); return err }))
		for i := range connectionCount {
			client := s.client.IPv4.As4()
			binary.BigEndian.PutUint16(client[2:], uint16(i>>14)+256)
			table.Insert(connections.Connection{
				Protocol: model.TCP, OrigSrc: netip.AddrPortFrom(netip.AddrFrom4(client), uint16(1024+i&0x3fff)),
				OrigDst: s.services[0].clusterIP(model.IPv4), ReplySrc: netip.AddrPortFrom(s.services[0].endpoints[0].pod.IPv4, greetPort),
				State: conntrack.TCPEstablished, IsReplied: true,
			})
		}
		proxy = s.startCounting(s.local)
		proxy.Log.WaitFor(b, fmt.Sprintf("alreadyOpen=%d", connectionCount))
		b.ReportMetric(float64(before>>20), "before-MiB")
		b.ReportMetric(float64(residentMemory(b, proxy)>>20), "after-MiB")
	}
}

// BenchmarkServices ends connections of 2,000 out of 40,000 Services. At most 500 Services get their own series.
func BenchmarkServices(b *testing.B) {
	const services, limit, used, each = 40_000, 500, 2000, 50
	s := newSetup(b)
	server := s.addPod(s.otherZone, "server")
	s.writeMany(services, server)
	proxy := s.start(s.local, s.command(s.local, "--traffic-accounting", "services="+strconv.Itoa(limit)))
	wait.Until(b, "a listener for destroy events", func() bool { return s.hasDestroyListener(s.local) })
	var table *connections.Table
	must.Succeed(b, s.local.Do(func() (err error) { table, err = connections.OpenCurrent(b); return err }))
	before := residentMemory(b, proxy)
	made := uint64(0)
	for b.Loop() {
		for i := range used * each {
			client := s.client.IPv6.As16()
			binary.BigEndian.PutUint32(client[12:], 1<<24+uint32(i))
			table.Insert(connections.Connection{
				Protocol: model.TCP, OrigSrc: netip.AddrPortFrom(netip.AddrFrom16(client), 40_000),
				OrigDst: netip.AddrPortFrom(manyAddr(i%used), servicePort), ReplySrc: netip.AddrPortFrom(server.IPv6, greetPort),
				State: conntrack.TCPEstablished, IsReplied: true, Label: ruleset.TranslatedLabel,
			})
		}
		must.Succeed(b, table.Flush(model.IPv6))
		made += used * each
		var counted uint64
		wait.Until(b, "stable counts", func() bool {
			last := counted
			time.Sleep(500 * time.Millisecond)
			counted = s.total(s.local, "vicinity_connections_total")
			return counted > 0 && counted == last
		})
		if lost := s.total(s.local, "vicinity_accounting_not_counted_total"); counted+lost < made || counted > made {
			b.Errorf("%d connections ended: %d counted, %d reported lost", made, counted, lost)
		}
	}
	bySeries := s.nonzeroSeries(s.local, "vicinity_service_connections_total")
	sum := uint64(0)
	for _, value := range bySeries {
		sum += value
	}
	if all := s.total(s.local, "vicinity_connections_total"); len(bySeries) > limit+1 || sum != all {
		b.Errorf("%d series count %d of %d connections, want at most %d series that count all", len(bySeries), sum, all, limit+1)
	}
	b.ReportMetric(float64(before>>20), "before-MiB")
	b.ReportMetric(float64(residentMemory(b, proxy)>>20), "after-MiB")
	b.ReportMetric(float64(len(bySeries)), "series")
}

// manyAddr returns the address of one of many Services.
func manyAddr(number int) netip.Addr {
	addr := netip.MustParseAddr("fd00:96::2:0").As16()
	binary.BigEndian.PutUint16(addr[14:], uint16(number))
	return netip.AddrFrom16(addr)
}

// writeMany writes Services with topology keys of their own; all of them have the same pod as endpoint.
func (s *setup) writeMany(services int, server *fabric.Pod) {
	s.t.Helper()
	s.write()
	var objects strings.Builder
	for i := range services {
		name := fmt.Sprintf("service-%05d", i)
		fmt.Fprintf(&objects, manyManifest, name, i, manyAddr(i), server.IPv6, server.Node.Name)
	}
	must.Succeed(s.t, os.WriteFile(filepath.Join(s.manifests, "many.yaml"), []byte(objects.String()), 0o600))
}

const manyManifest = `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop, annotations: {vicinity.dev/topology-keys: "tenants.example/key-%[2]d,*"}}
spec: {clusterIP: "%[3]s", clusterIPs: ["%[3]s"], ipFamilies: [IPv6], ports: [{name: tcp, protocol: TCP, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv6
ports: [{name: tcp, protocol: TCP, port: 8080}]
endpoints: [{addresses: ["%[4]s"], nodeName: %[5]s, conditions: {ready: true, serving: true, terminating: false}}]
`
