package dns_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// BenchmarkResponses measures the cost of a response of the proxy, and for comparison of CoreDNS with the same Service of
// ten endpoints.
func BenchmarkResponses(b *testing.B) {
	s := newSetup(b)
	h := headless{"ten", "*", []corev1.ServicePort{httpPort}, nil}
	for i := range 10 {
		h.endpoints = append(h.endpoints, fmt.Sprintf("10.5.0.%d a", i+1))
	}
	s.create(h)
	servers := []struct {
		name, address string
		pid           int
	}{
		{"the proxy", proxyAddress, s.proxy.PID()},
		{"CoreDNS", net.JoinHostPort(s.other.IPv4.String(), dnsPort), s.clusterDNS.PID()},
	}
	for _, server := range servers {
		wait.Success(b, server.name+" responds", func() error {
			return hasAnswer(s.query(s.node.Namespace, server.address, "udp", "A", h.fullName()))
		})
	}
	b.ResetTimer()
	var cost [2]float64
	for range b.N {
		for i, server := range servers {
			before := cpuTime(b, server.pid)
			took := s.queryMany(b, server.address, h.fullName())
			perQuery := float64((cpuTime(b, server.pid) - before).Microseconds()) / float64(len(took))
			cost[i] += perQuery
			b.Logf("%s: %.1f us of CPU time per query, so %.0f per second and core; p50 %s, p99 %s",
				server.name, perQuery, 1e6/perQuery, took[len(took)/2], took[len(took)*99/100])
		}
	}
	b.ReportMetric(cost[0]/cost[1], "CPU-time/CoreDNS")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRefusedNames measures the cost of lookups of names that the proxy refuses, for all servers together: with
// the proxy as the first upstream of the node's cache and without it. In the worst case the cache has none of the
// names; normally it does.
func BenchmarkRefusedNames(b *testing.B) {
	s := newSetup(b)
	h := headless{"keyless", "", []corev1.ServicePort{httpPort}, []string{"10.5.1.1 a"}}
	s.create(h)
	readme := cacheCorefile(b, s.other.IPv4)
	without := strings.ReplaceAll(readme, "forward . "+proxyAddress, "forward .")
	for _, cached := range []bool{false, true} {
		var cost [2]float64
		for i, corefile := range []string{readme, without} {
			if !cached {
				corefile = withoutCache(corefile)
			}
			must.Succeed(b, s.cache.Stop(10*time.Second))
			s.cache = s.startCoreDNS(binaries.NodeDNS, s.node.Namespace, corefile)
			wait.Success(b, "a response", func() error { return hasAnswer(s.queryCache("A", h.fullName())) })
			for range b.N {
				cost[i] += s.costPerLookup(b, h.fullName())
			}
		}
		b.Logf("%s: %.1f us of CPU time per lookup with the proxy, %.1f without",
			map[bool]string{false: "without cached names", true: "cached"}[cached], cost[0]/float64(b.N), cost[1]/float64(b.N))
		b.ReportMetric(cost[0]/cost[1], map[bool]string{false: "uncached/without", true: "cached/without"}[cached])
	}
	b.ReportMetric(0, "ns/op")
}

// costPerLookup returns the CPU time in us that one of many lookups through the cache takes on all servers.
func (s *setup) costPerLookup(b *testing.B, name string) float64 {
	b.Helper()
	sum := func() (sum time.Duration) {
		for _, process := range []*site.Process{s.cache, s.proxy, s.clusterDNS} {
			sum += cpuTime(b, process.PID())
		}
		return sum
	}
	before := sum()
	took := s.queryMany(b, net.JoinHostPort("127.0.0.1", dnsPort), name)
	return float64((sum() - before).Microseconds()) / float64(len(took))
}

const (
	queryClients     = 8
	queriesPerClient = 4000
	clockTick        = 10 * time.Millisecond // of /proc, on every Linux
	manyServices     = 10_000
	changeTries      = 100
)

// queryMany queries a server over UDP from several clients at once, each again after its response, and returns the
// sorted times.
func (s *setup) queryMany(b *testing.B, address, name string) []time.Duration {
	b.Helper()
	var mutex sync.Mutex
	var all []time.Duration
	var requests sync.WaitGroup
	for range queryClients {
		conn, err := s.node.Dial("udp", address, time.Second)
		must.Succeed(b, err)
		requests.Go(func() {
			defer conn.Close()
			var took []time.Duration
			for range queriesPerClient {
				began := time.Now()
				if err := hasAnswer(exchange(conn, new(miekg.Msg).SetQuestion(name, miekg.TypeA))); err != nil {
					b.Error(err)
					return
				}
				took = append(took, time.Since(began))
			}
			mutex.Lock()
			defer mutex.Unlock()
			all = append(all, took...)
		})
	}
	requests.Wait()
	slices.Sort(all)
	return all
}

// cpuTime returns the CPU time of a process.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must.Succeed(b, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	sum := 0
	for _, field := range fields[11:13] { // utime and stime, proc(5)
		ticks, err := strconv.Atoi(field)
		must.Succeed(b, err)
		sum += ticks
	}
	return time.Duration(sum) * clockTick
}

// BenchmarkManyServices measures the cost of 10,000 headless Services of ten endpoints, and the time until a change is
// served.
func BenchmarkManyServices(b *testing.B) {
	s := newSetup(b)
	before := residentMemory(b, s.proxy.PID())
	s.createMany(b, manyServices)
	wait.Equal(b, "all Services are known", fmt.Sprint(manyServices), func() string {
		count, err := s.proxy.Metric(metricsAddress, "vicinity_dns_services")
		return fmt.Sprint(count, err)[:len(fmt.Sprint(manyServices))]
	})
	time.Sleep(5 * time.Second) // until the proxy frees the memory of the lists
	b.Logf("%d Services of ten endpoints: %d MiB resident, %d before, peak %d",
		manyServices, residentMemory(b, s.proxy.PID())>>20, before>>20, peakMemory(b, s.proxy.PID())>>20)
	b.ResetTimer()
	var took []time.Duration
	for i := range changeTries {
		took = append(took, s.timeChange(b, i))
	}
	slices.Sort(took)
	b.Logf("from the API server's response to a change until the proxy serves it: p50 %s, p99 %s", took[len(took)/2], took[len(took)*99/100])
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}

func (s *setup) createMany(b *testing.B, count int) {
	b.Helper()
	numbers := make(chan int)
	var creating sync.WaitGroup
	for range 16 {
		creating.Go(func() {
			for number := range numbers {
				h := manyOf(number, 0)
				s.api.Create(b, h.service())
				s.api.Create(b, h.slices()[0])
			}
		})
	}
	for number := range count {
		numbers <- number
	}
	close(numbers)
	creating.Wait()
}

// manyOf returns one of many Services. Its first endpoint depends on the version.
func manyOf(number, version int) headless {
	h := headless{fmt.Sprintf("many-%d", number), "topology.kubernetes.io/zone, *", []corev1.ServicePort{httpPort}, nil}
	for i := range 10 {
		last := i + 1
		if i == 0 {
			last = 100 + version
		}
		h.endpoints = append(h.endpoints, fmt.Sprintf("10.%d.%d.%d a", 100+number/256, number%256, last))
	}
	return h
}

// timeChange changes the EndpointSlice of manyOf(7), and returns the time from the API server's response until the
// proxy serves the change.
func (s *setup) timeChange(b *testing.B, version int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	h := manyOf(7, version+1)
	want := netip.MustParseAddr(strings.Fields(h.endpoints[0])[0]).String()
	_, err := s.api.Admin.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Update(ctx, h.slices()[0], metav1.UpdateOptions{})
	must.Succeed(b, err)
	conn, err := s.node.Dial("udp", proxyAddress, time.Second)
	must.Succeed(b, err)
	defer conn.Close()
	for began := time.Now(); ; {
		answer, err := exchange(conn, new(miekg.Msg).SetQuestion(h.fullName(), miekg.TypeA))
		must.Succeed(b, err)
		if strings.Contains(answerText(answer), want) {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			b.Fatalf("after a minute, the proxy does not serve the new address %s", want)
		}
	}
}

func residentMemory(b *testing.B, pid int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must.Succeed(b, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	must.Succeed(b, err)
	return pages * os.Getpagesize()
}

// peakMemory returns the maximum of the resident memory.
func peakMemory(b *testing.B, pid int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must.Succeed(b, err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	must.Succeed(b, err)
	return kilobytes << 10
}
