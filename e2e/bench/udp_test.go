package bench_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/conntrackgc"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

const (
	udpEvents = 200 // in each iteration of the benchmark
	dnsPort   = 53
)

// These are the only UDP Service, its client, and the client and server of unrelated flows. No Service has one of these
// addresses except dnsIP.
var (
	dns         = model.ObjectName{Namespace: "kube-system", Name: "dns"}
	dnsIP       = netip.MustParseAddr("10.97.0.10")
	dnsClient   = netip.MustParseAddr("10.244.0.9")
	otherClient = netip.MustParseAddr("10.244.0.8")
	otherServer = netip.MustParseAddr("192.0.2.53")
)

// BenchmarkUDPChange measures the events after which the proxy dumps conntrack. Each event replaces an endpoint with
// one flow, so the proxy must find this flow among unrelated ones and delete it.
func BenchmarkUDPChange(b *testing.B) {
	size := size{services: 10_000, endpoints: 10, mix: true}
	for _, others := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("%d other flows", others), func(b *testing.B) {
			machine := newMachine(b)
			index := serviceindex.New(conntrackgc.StaleEntryWindow)
			p := machine.proxyOf(size.cluster().Merge(model.Change{Services: map[model.ObjectName]*model.Service{dns: dnsService()}}), index)
			p.Apply(dnsEndpoints(size, 0))
			sync(b, p)
			entries := openEntries(b, machine)
			for port := range others {
				entries.add(netip.AddrPortFrom(otherClient, uint16(1024+port)), otherServer, otherServer)
			}
			runtime.GC()
			var found, deleted samples
			round := 0
			for b.Loop() {
				for range udpEvents {
					round++
					entries.add(netip.AddrPortFrom(dnsClient, dnsPort), dnsIP, dnsEndpoint(round-1))
					found.measureOne(b, p, dnsEndpoints(size, round))
					deleted.measureFlows(b, machine, index)
				}
			}
			if got := entries.count(); got != others {
				b.Errorf("%d flows remain, want only the %d others", got, others)
			}
			b.ReportMetric(percentile(slices.Sorted(slices.Values(deleted.times)), 50).Seconds()*1e6, "p50-µs")
			name := fmt.Sprintf("one endpoint of a UDP Service replaced, %d other flows", others)
			for _, row := range []changeRow{
				{event: name, cluster: size.String(), samples: found},
				{event: "… until its flow is deleted", cluster: size.String(), samples: deleted},
			} {
				slices.Sort(row.times)
				results.changes = append(results.changes, row)
			}
		})
	}
}

func (s *samples) measureOne(b *testing.B, p *syncer.Proxy, change model.Change) {
	b.Helper()
	started := time.Now()
	p.Apply(change)
	report := sync(b, p)
	s.times = append(s.times, time.Since(started))
	s.written = max(s.written, written(report))
}

// measureFlows measures the deletion of the stale flow: the one whose endpoint was replaced.
func (s *samples) measureFlows(b *testing.B, machine *machine, index *serviceindex.Index) {
	b.Helper()
	started := time.Now()
	done, err := conntrackgc.NewReconciler(conntrack.NewDumpScheduler(machine.conn, nil), index, machine.routes.IsLocal).CleanOnce(b.Context())
	s.times = append(s.times, time.Since(started))
	deleted := 0
	for _, pass := range done.Flows {
		deleted += pass.Deleted
	}
	if err != nil || deleted != 1 {
		b.Fatalf("deleted %d flows, error %v, want the one whose endpoint was replaced", deleted, err)
	}
}

func dnsService() *model.Service {
	return &model.Service{
		Name:       dns,
		ClusterIPs: []netip.Addr{dnsIP},
		Ports:      []model.ServicePort{{Name: "dns", Protocol: model.UDP, Port: dnsPort}},
	}
}

// dnsEndpoints returns the endpoints after the given number of replacements.
func dnsEndpoints(s size, round int) model.Change {
	slice := s.slice(0, s.endpoints)
	slice.Name, slice.Service = dns, dns
	slice.Ports = []model.SlicePort{{Name: "dns", Protocol: model.UDP, Port: dnsPort}}
	for i := range slice.Endpoints {
		slice.Endpoints[i].Addr = dnsEndpoint(round + i)
	}
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{dns: slice}}
}

func dnsEndpoint(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{11, byte(number >> 16), byte(number >> 8), byte(number)})
}

// entries reads and writes conntrack, independently of package conntrack.
type entries struct {
	b      *testing.B
	handle *netlink.Handle
}

func openEntries(b *testing.B, m *machine) entries {
	b.Helper()
	opened := entries{b: b}
	err := m.Do(func() (err error) { opened.handle, err = netlink.NewHandle(unix.NETLINK_NETFILTER); return err })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(opened.handle.Close)
	return opened
}

// add adds the entry of a UDP flow, with a timeout as of an established one.
func (e entries) add(client netip.AddrPort, origDst, replySrc netip.Addr) {
	e.b.Helper()
	to, replyFrom := netip.AddrPortFrom(origDst, dnsPort), netip.AddrPortFrom(replySrc, dnsPort)
	flow := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 3600, Forward: tuple(client, to), Reverse: tuple(replyFrom, client)}
	if err := e.handle.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow); err != nil {
		e.b.Fatalf("add a flow from %s to %s: %v", client, to, err)
	}
}

func tuple(source, destination netip.AddrPort) netlink.IPTuple {
	return netlink.IPTuple{
		Protocol: unix.IPPROTO_UDP,
		SrcIP:    source.Addr().AsSlice(), SrcPort: source.Port(), DstIP: destination.Addr().AsSlice(), DstPort: destination.Port(),
	}
}

func (e entries) count() int {
	e.b.Helper()
	all, err := e.handle.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		e.b.Fatalf("list the flows: %v", err)
	}
	return len(all)
}
