package dns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// largeService returns the decisions about shop/web with many ports, whose endpoints serve all of them at one port
// number, or each at its own.
func largeService(ports, endpoints int, oneNumber bool) []selection.Decision {
	name := model.ObjectName{Namespace: "shop", Name: "web"}
	service := &model.Service{Name: name, IsHeadless: true, Topology: policy.Topology{Keys: []policy.Key{policy.AnyNode}}}
	slice := &model.EndpointSlice{Name: name, Service: name}
	for i := range ports {
		port := model.ServicePort{Name: fmt.Sprint("p-", i), Protocol: model.TCP, Port: uint16(i + 1)}
		number := port.Port
		if oneNumber {
			number = 8080
		}
		service.Ports = append(service.Ports, port)
		slice.Ports = append(slice.Ports, model.SlicePort{Name: port.Name, Protocol: model.TCP, Port: number})
	}
	addr := netip.MustParseAddr("10.0.0.1")
	for range endpoints {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addr, Endpoint: model.Endpoint{Ready: true, Serving: true}})
		addr = addr.Next()
	}
	cluster := model.NewCluster("n1")
	cluster.Apply(model.Change{
		Services: map[model.ObjectName]*model.Service{name: service}, Slices: map[model.ObjectName]*model.EndpointSlice{name: slice},
	})
	return selection.NewPlanner(cluster).Decide(name, model.Families)
}

func lookupOf(records *Records) func(model.ObjectName) *Records {
	return func(model.ObjectName) *Records { return records }
}

// TestAnswerCostDependsOnItsRecords: the cost depends only on the records in the response. The test counts
// allocations, and the records in the response.
func TestAnswerCostDependsOnItsRecords(t *testing.T) {
	for title, test := range map[string]struct {
		large, small []selection.Decision
		query        string
		transport    Transport
	}{
		"8,192 ports with one number":           {largeService(8192, 4, true), largeService(1, 4, true), "SRV " + webName, TCP},
		"8,192 ports, queried by port name":     {largeService(8192, 4, true), largeService(1, 4, true), "SRV _p-0._tcp." + webName, TCP},
		"8,192 ports, addresses":                {largeService(8192, 4, true), largeService(1, 4, true), "A _p-0._tcp." + webName, TCP},
		"8,192 numbers, truncated":              {largeService(8192, 4, false), largeService(12, 4, false), "SRV " + webName, UDP},
		"32,768 addresses, truncated":           {largeService(1, 32768, true), largeService(1, 100, true), "A " + webName, UDP},
		"32,768 addresses of a port, truncated": {largeService(1, 32768, true), largeService(1, 100, true), "A _p-0._tcp." + webName, UDP},
		"32,768 addresses over TCP":             {largeService(1, 32768, true), largeService(1, 5000, true), "A " + webName, TCP},
	} {
		t.Run(title, func(t *testing.T) {
			packed, err := newQuery(t, test.query).Pack()
			if err != nil {
				t.Fatal(err)
			}
			cost := func(decisions []selection.Decision) (records int, allocations float64) {
				lookup := lookupOf(NewRecords(decisions, testZone))
				answer, _ := testZone.Answer(packed, test.transport, lookup, firstTarget)
				var parsed miekg.Msg
				if err := parsed.Unpack(answer); err != nil {
					t.Fatal(err)
				}
				return len(parsed.Answer), testing.AllocsPerRun(3, func() { testZone.Answer(packed, test.transport, lookup, firstTarget) })
			}
			largeRecords, large := cost(test.large)
			smallRecords, small := cost(test.small)
			if largeRecords != smallRecords || largeRecords == 0 || large > small+2 {
				t.Errorf("%d records take %.0f allocations, but %d records of a small Service take %.0f", largeRecords, large, smallRecords, small)
			}
		})
	}
}

// TestRecordsAreUnique: even if endpoints and ports are alike, each retained target has a different record.
func TestRecordsAreUnique(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		name := model.ObjectName{Namespace: "shop", Name: "web"}
		service := &model.Service{Name: name, IsHeadless: true, Topology: policy.Topology{Keys: []policy.Key{policy.AnyNode}}}
		change := model.Change{
			Services: map[model.ObjectName]*model.Service{name: service}, Slices: map[model.ObjectName]*model.EndpointSlice{},
		}
		for i := range 1 + random.IntN(4) {
			service.Ports = append(service.Ports, model.ServicePort{Name: fmt.Sprint("p", i), Protocol: model.TCP, Port: uint16(i + 1)})
		}
		for i := range 1 + random.IntN(4) {
			slice := &model.EndpointSlice{Name: model.ObjectName{Namespace: "shop", Name: fmt.Sprint("web-", i)}, Service: name}
			slice.Family = model.Families[random.IntN(2)]
			for _, port := range service.Ports {
				slice.Ports = append(slice.Ports, model.SlicePort{Name: port.Name, Protocol: model.TCP, Port: uint16(80 + random.IntN(2))})
			}
			for range random.IntN(6) {
				addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(5))})
				if slice.Family == model.IPv6 {
					addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(random.IntN(5))})
				}
				slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addr, Endpoint: model.Endpoint{Ready: true, Serving: true}})
				slice.Hostnames = append(slice.Hostnames, [...]string{"", "", "web-1", "10-0-0-3"}[random.IntN(4)])
			}
			change.Slices[slice.Name] = slice
		}
		cluster := model.NewCluster("n1")
		cluster.Apply(change)
		decisions := selection.NewPlanner(cluster).Decide(name, model.Families)
		records := NewRecords(decisions, testZone)
		if records == nil {
			continue // no endpoint is ready
		}
		for query, sets := range map[string]*recordSets{webName: &records.serviceSets,
			"_p0._tcp." + webName: records.ports[portName{"p0", "tcp"}]} {
			for typ, all := range map[string]rrset{
				"A": sets.addresses[model.IPv4], "AAAA": sets.addresses[model.IPv6], "SRV": sets.srv,
			} {
				got, _, _ := exchange(t, newQuery(t, typ+" "+query), TCP, lookupOf(records))
				want := expectedContents(decisions, typ, query != webName)
				var contents []string
				for _, record := range got.Answer {
					contents = append(contents, contentOf(record))
				}
				slices.Sort(contents)
				if !slices.Equal(contents, want) || all.count != len(want) {
					t.Fatalf("seed %d: %s %s: %d targets, records %q, want %q", seed, typ, query, all.count, contents, want)
				}
			}
		}
	}
}

// contentOf returns the content of a record without its weight.
func contentOf(record miekg.RR) string {
	switch record := record.(type) {
	case *miekg.A:
		return record.A.String()
	case *miekg.AAAA:
		return record.AAAA.String()
	case *miekg.SRV:
		return fmt.Sprint(strings.TrimSuffix(record.Target, "."+webName), " ", record.Port)
	}
	return record.String()
}

// expectedContents returns the contents of the records that follow from decisions, computed in the simplest way: of the
// Service's name, or of its port p0.
func expectedContents(decisions []selection.Decision, typ string, forPort bool) []string {
	contents := map[string]bool{}
	for _, decision := range decisions {
		isIncluded := decision.Port.Name == "p0" || !forPort && (typ == "SRV") == (decision.Port.Name != "")
		if !isIncluded || typ == "A" && decision.Family == model.IPv6 || typ == "AAAA" && decision.Family == model.IPv4 {
			continue
		}
		for _, endpoint := range decision.Selection.Cluster.Endpoints {
			addr := endpoint.Addr.Addr()
			if typ != "SRV" {
				contents[addr.String()] = true
				continue
			}
			name := decision.Hostnames[addr]
			if name == "" {
				name = strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
			}
			if strings.HasSuffix(name, "-") {
				name += "0"
			}
			contents[fmt.Sprint(name, " ", endpoint.Addr.Port())] = true
		}
	}
	var all []string
	for content := range contents {
		all = append(all, content)
	}
	slices.Sort(all)
	return all
}

// TestTargetWithTooLongNameHasNoSRVRecord: an endpoint whose name would be too long for DNS has address records and no
// SRV record.
func TestTargetWithTooLongNameHasNoSRVRecord(t *testing.T) {
	long := Zone{Domain: strings.Repeat(strings.Repeat("d", 63)+".", 3) + "example", TTL: 5 * time.Second}
	service := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a name=" + strings.Repeat("h", 63), "10.0.0.2 a"}}
	records := NewRecords(service.decisions(), long)
	below := "web.shop.svc." + long.name()
	for query, want := range map[string]int{"A " + below: 2, "SRV " + below: 2, "SRV _http._tcp." + below: 1} {
		packed, err := newQuery(t, query).Pack()
		if err != nil {
			t.Fatal(err)
		}
		answer, result := long.Answer(packed, TCP, lookupOf(records), firstTarget)
		var parsed miekg.Msg
		if err := parsed.Unpack(answer); err != nil || len(parsed.Answer) != want || result.Outcome != Answered {
			t.Errorf("%.20s: %d records, want %d, %v, %v", query, len(parsed.Answer), want, result, err)
		}
	}
}

// BenchmarkAnswer measures the cost of a response for a Service with very many ports, compared with one of the same
// length for a small Service.
func BenchmarkAnswer(b *testing.B) {
	for title, test := range map[string]struct {
		large, small []selection.Decision
		typ          uint16
		transport    Transport
	}{
		"SRV-8192-ports-4-records":    {largeService(8192, 4, true), largeService(1, 4, true), miekg.TypeSRV, UDP},
		"SRV-8192-numbers-UDP":        {largeService(8192, 4, false), largeService(12, 4, false), miekg.TypeSRV, UDP},
		"SRV-8192-numbers-TCP":        {largeService(8192, 4, false), largeService(300, 4, false), miekg.TypeSRV, TCP},
		"A-32768-addresses-UDP":       {largeService(1, 32768, true), largeService(1, 100, true), miekg.TypeA, UDP},
		"A-32768-addresses-TCP":       {largeService(1, 32768, true), largeService(1, 5000, true), miekg.TypeA, TCP},
		"SRV-1-port-4-records-itself": {largeService(1, 4, true), largeService(1, 4, true), miekg.TypeSRV, UDP},
	} {
		b.Run(title, func(b *testing.B) {
			packed, err := new(miekg.Msg).SetQuestion(webName, test.typ).Pack()
			if err != nil {
				b.Fatal(err)
			}
			large, small := lookupOf(NewRecords(test.large, testZone)), lookupOf(NewRecords(test.small, testZone))
			var took [2]time.Duration
			for range b.N {
				for i, lookup := range []func(model.ObjectName) *Records{large, small} {
					started := time.Now()
					testZone.Answer(packed, test.transport, lookup, rand.Uint32N)
					took[i] += time.Since(started)
				}
			}
			b.ReportMetric(float64(took[0])/float64(took[1]), "large/small")
		})
	}
}

// BenchmarkRecords measures the cost of building records, compared with making the decisions.
func BenchmarkRecords(b *testing.B) {
	for title, size := range map[string][2]int{"8192-ports-4-endpoints": {8192, 4}, "1-port-32768-endpoints": {1, 32768}} {
		b.Run(title, func(b *testing.B) {
			var took [2]time.Duration
			for range b.N {
				started := time.Now()
				decisions := largeService(size[0], size[1], false)
				decided := time.Now()
				NewRecords(decisions, testZone)
				took[0], took[1] = took[0]+decided.Sub(started), took[1]+time.Since(decided)
			}
			b.ReportMetric(float64(took[1])/float64(took[0]), "records/decisions")
		})
	}
}
