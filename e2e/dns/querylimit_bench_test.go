package dns_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// BenchmarkChangesOfOtherServices measures the time until changes of other Services are served, with and without 200
// queries per second for the SRV records of a Service with 8,192 ports.
func BenchmarkChangesOfOtherServices(b *testing.B) {
	const ports, queriesPerSecond, changes = 8192, 200, 400
	s := newSetup(b)
	flood := headless{"flood", "*", nil, []string{"10.5.0.1 a", "10.5.0.2 a", "10.5.0.3 a", "10.5.0.4 a"}}
	for i := range ports {
		flood.ports = append(flood.ports, corev1.ServicePort{Name: fmt.Sprintf("p-%d", i), Port: int32(i + 1), Protocol: corev1.ProtocolTCP})
	}
	other := manyOf(7, 0)
	s.create(flood, other)
	b.ResetTimer()
	version := 0
	measure := func() (p50, longest time.Duration) {
		var took []time.Duration
		for range changes {
			took = append(took, s.timeChange(b, version%100))
			version++
		}
		slices.Sort(took)
		return took[len(took)/2], took[len(took)-1]
	}
	p50, longest := measure()
	b.Logf("without queries: p50 %s, max %s", p50, longest)

	conn, err := s.node.Dial("udp", proxyAddress, time.Second)
	must.Succeed(b, err)
	defer conn.Close()
	stop, ended := make(chan struct{}), make(chan int)
	before := cpuTime(b, s.proxy.PID())
	go func() {
		sent := 0
		defer func() { ended <- sent }()
		ticks := time.NewTicker(time.Second / queriesPerSecond)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
			if _, err := exchange(conn, new(miekg.Msg).SetQuestion(flood.fullName(), miekg.TypeSRV)); err != nil {
				b.Error(err)
				return
			}
			sent++
		}
	}()
	floodP50, floodLongest := measure()
	close(stop)
	sent := <-ended
	perQuery := (cpuTime(b, s.proxy.PID()) - before) / time.Duration(max(sent, 1))
	b.Logf("%d queries for %d SRV records: p50 %s, max %s; %s of CPU time per query, including the changes",
		sent, ports*len(flood.endpoints), floodP50, floodLongest, perQuery)
	b.ReportMetric(float64(floodP50)/float64(p50), "p50/alone")
	b.ReportMetric(0, "ns/op")
}
