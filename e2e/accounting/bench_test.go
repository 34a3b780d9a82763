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

// busyTown is a node with clients that make short connections to another node, each to its own server.
type busyTown struct {
	*town
	proxy    *site.Process
	crowds   []*loadGenerator
	dialling time.Duration
}

func newBusyTown(b *testing.B, crowds int, flags ...string) *busyTown {
	b.Helper()
	s := &busyTown{town: newTown(b)}
	for i := range crowds {
		server := s.addPod(s.across, fmt.Sprint("server-", i))
		s.add(fmt.Sprint("loaded-", i), allKeys, endpoint{pod: server}).port = loadPort
		s.crowds = append(s.crowds, newLoadGenerator(b, s.addPod(s.local, fmt.Sprint("client-", i)), server))
	}
	s.write()
	must.Succeed(b, s.local.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_close", "1"))
	s.proxy = s.start(s.local, s.command(s.local, flags...))
	wait.Until(b, "a listener for destroy events", func() bool { return s.listens(s.local) == (flags != nil) })
	return s
}

// dial makes the given number of connections from each load generator, as fast as possible if perSecond is 0.
func (s *busyTown) dial(each, perSecond int) {
	began := time.Now()
	var dialling sync.WaitGroup
	for i, c := range s.crowds {
		dialling.Go(func() { c.dial(s.services[i].clusterIP(model.IPv4), each, perSecond) })
	}
	dialling.Wait()
	s.dialling += time.Since(began)
}

// processorTime returns the CPU time that a program has used: utime and stime of proc(5), in hundredths of a second.
func processorTime(b *testing.B, of *site.Process) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", of.PID()))
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
	const turns, inTurn = 60, 500
	sides := [2]*busyTown{newBusyTown(b, 1), newBusyTown(b, 1, "--traffic-accounting", "services")}
	for b.Loop() {
		for turn := range turns {
			for i := range sides {
				sides[(turn+i)%2].dial(inTurn, 0)
			}
		}
	}
	without, with := sides[0].crowds[0], sides[1].crowds[0]
	slices.Sort(without.took)
	slices.Sort(with.took)
	for _, at := range []struct {
		name    string
		percent int
	}{{"p50", 50}, {"p99", 99}} {
		before, after := without.took[len(without.took)*at.percent/100], with.took[len(with.took)*at.percent/100]
		b.ReportMetric(float64(before.Nanoseconds())/1000, at.name+"-off-µs")
		b.ReportMetric(float64(after.Nanoseconds())/1000, at.name+"-on-µs")
		b.ReportMetric(float64(after)/float64(before), at.name+"-ratio")
	}
	b.ReportMetric(float64(len(without.took))/sides[0].dialling.Seconds(), "off/s")
	b.ReportMetric(float64(len(with.took))/sides[1].dialling.Seconds(), "on/s")
}

// BenchmarkProcessor measures the CPU time of the proxy that reads the destroy events.
func BenchmarkProcessor(b *testing.B) {
	const seconds, crowds = 5, 2
	for _, perSecond := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(perSecond), func(b *testing.B) {
			s := newBusyTown(b, crowds, "--traffic-accounting", "services")
			var used, elapsed time.Duration
			made, lost := uint64(0), uint64(0)
			for b.Loop() {
				before, dialled := processorTime(b, s.proxy), s.dialling
				s.dial(perSecond*seconds/crowds, perSecond/crowds)
				made += uint64(perSecond * seconds)
				wait.Until(b, "the connections, or an overrun", func() bool {
					lost = s.number(s.local, "vicinity_accounting_not_counted_total")
					return lost > 0 || s.number(s.local, "vicinity_connections_total") == made
				})
				used += processorTime(b, s.proxy) - before
				elapsed += s.dialling - dialled
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
	const number = 100_000
	for _, flags := range [][]string{nil, {"--traffic-accounting", "services"}} {
		b.Run("account="+strconv.FormatBool(flags != nil), func(b *testing.B) {
			s := newBusyTown(b, 1, flags...)
			bursts := bursts{town: s.town, to: s.services[0], server: s.crowds[0].server}
			must.Succeed(b, s.local.Do(func() (err error) { bursts.table, err = connections.OpenCurrent(b); return err }))
			fastest := time.Hour
			for b.Loop() {
				bursts.fill(number)
				began := time.Now()
				must.Succeed(b, bursts.table.Flush(model.IPv6))
				fastest = min(fastest, time.Since(began))
			}
			b.ReportMetric(float64(fastest.Nanoseconds())/number/1000, "µs/entry")
		})
	}
}

// BenchmarkMemory measures the proxy's memory while it tracks 100,000 connections that another program translated. They
// lack our label and need no traffic.
func BenchmarkMemory(b *testing.B) {
	const number = 100_000
	for b.Loop() {
		s := newTown(b)
		s.add("web", allKeys, endpoint{pod: s.addPod(s.across, "server")})
		s.write()
		proxy := s.count(s.local)
		proxy.Log.WaitFor(b, "started to count connections")
		before := residentMemory(b, proxy)
		must.Succeed(b, proxy.Stop(time.Minute))
		var table *connections.Table
		must.Succeed(b, s.local.Do(func() (err error) { table, err = connections.OpenCurrent(b); return err }))
		for i := range number {
			client := s.client.IPv4.As4()
			binary.BigEndian.PutUint16(client[2:], uint16(i>>14)+256)
			table.Insert(connections.Connection{
				Protocol: model.TCP, Client: netip.AddrPortFrom(netip.AddrFrom4(client), uint16(1024+i&0x3fff)),
				Dialled: s.services[0].clusterIP(model.IPv4), ReplySrc: netip.AddrPortFrom(s.services[0].endpoints[0].pod.IPv4, greetPort),
				State: conntrack.TCPEstablished, IsReplied: true,
			})
		}
		proxy = s.count(s.local)
		proxy.Log.WaitFor(b, fmt.Sprintf("alreadyOpen=%d", number))
		b.ReportMetric(float64(before>>20), "before-MiB")
		b.ReportMetric(float64(residentMemory(b, proxy)>>20), "after-MiB")
	}
}

// BenchmarkServices ends connections of 2,000 out of 40,000 Services. At most 500 Services get their own series.
func BenchmarkServices(b *testing.B) {
	const services, named, used, each = 40_000, 500, 2000, 50
	s := newTown(b)
	server := s.addPod(s.across, "server")
	s.writeMany(services, server)
	proxy := s.start(s.local, s.command(s.local, "--traffic-accounting", "services="+strconv.Itoa(named)))
	wait.Until(b, "a listener for destroy events", func() bool { return s.listens(s.local) })
	var table *connections.Table
	must.Succeed(b, s.local.Do(func() (err error) { table, err = connections.OpenCurrent(b); return err }))
	before := residentMemory(b, proxy)
	made := uint64(0)
	for b.Loop() {
		for i := range used * each {
			client := s.client.IPv6.As16()
			binary.BigEndian.PutUint32(client[12:], 1<<24+uint32(i))
			table.Insert(connections.Connection{
				Protocol: model.TCP, Client: netip.AddrPortFrom(netip.AddrFrom16(client), 40_000),
				Dialled: netip.AddrPortFrom(manyAddr(i%used), servicePort), ReplySrc: netip.AddrPortFrom(server.IPv6, greetPort),
				State: conntrack.TCPEstablished, IsReplied: true, Label: ruleset.TranslatedLabel,
			})
		}
		must.Succeed(b, table.Flush(model.IPv6))
		made += used * each
		var counted uint64
		wait.Until(b, "stable counts", func() bool {
			last := counted
			time.Sleep(500 * time.Millisecond)
			counted = s.number(s.local, "vicinity_connections_total")
			return counted > 0 && counted == last
		})
		if lost := s.number(s.local, "vicinity_accounting_not_counted_total"); counted+lost < made || counted > made {
			b.Errorf("%d connections ended: %d counted, %d reported lost", made, counted, lost)
		}
	}
	bySeries := s.numbers(s.local, "vicinity_service_connections_total")
	sum := uint64(0)
	for _, value := range bySeries {
		sum += value
	}
	if all := s.number(s.local, "vicinity_connections_total"); len(bySeries) > named+1 || sum != all {
		b.Errorf("%d series count %d of %d connections", len(bySeries), sum, all)
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
func (s *town) writeMany(services int, server *fabric.Pod) {
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
