package proxy_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	traffic "github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// TestAProxyThatStartsRecallsTheFrontendsOfAnEarlierOne, of UDP: their Services may have been deleted while none was
// running. It recalls who answered node ports, too, as far as the tables say so; they do not with session affinity.
func TestAProxyThatStartsRecallsTheFrontendsOfAnEarlierOne(t *testing.T) {
	for name, makeKernel := range map[string]func(t *testing.T) proxy.Kernel{
		"in memory":     func(*testing.T) proxy.Kernel { return &memoryKernel{} },
		"in the kernel": func(t *testing.T) proxy.Kernel { return newRealKernel(t) },
	} {
		t.Run(name, func(t *testing.T) {
			kernel := makeKernel(t)
			earlier := starting(kernel)
			both := nameService("dns", "10.96.0.1", externalIP, nodePort(30053))
			both.ClusterIPs = addrs("10.96.0.1", "fd00:96::1")
			earlier.Apply(oneService(both, answeredBy("dns", 1, 2)))
			earlier.Apply(oneService(nameService("tcp", "10.96.0.3", port(model.TCP, 53), nodePort(30054)), nil))
			sticky := nameService("sticky", "10.96.0.4", nodePort(30055))
			sticky.AffinityTimeout = 1e9
			earlier.Apply(oneService(sticky, answeredBy("sticky", 1)))
			mustSync(t, earlier)

			of := traffic.NewReader(0)
			p := starting(kernel, of)
			p.Apply(oneService(nameService("dns", "10.96.0.1"), answeredBy("dns", 2)))
			mustSync(t, p)
			for dialled, want := range map[string]string{
				"10.96.0.1:53": "served", "192.0.2.1:53": "gone", "172.16.0.1:30053": "gone 10.244.0.1 10.244.0.2", "[fd00:96::1]:53": "gone",
				"[fd00:172::1]:30053": "gone", "10.96.0.3:53": "unknown", "172.16.0.1:30054": "unknown", "172.16.0.1:30055": "gone",
			} {
				got := "unknown"
				if f := of.OwnerOfFlow(of.Snapshot(), netip.MustParseAddrPort(dialled), 0); f != nil {
					if got = "gone"; f.IsServed() {
						got = "served"
					}
					for number := 1; f.IsNodePort() && number < 3; number++ {
						if addr := podAddr(number); of.HadEndpoint(f, netip.AddrPortFrom(addr, 53)) {
							got += " " + addr.String()
						}
					}
				}
				if got != want {
					t.Errorf("%s is %s, want it %s", dialled, got, want)
				}
			}
			if families := of.Snapshot().ChangedAfter(0); len(families) != 2 {
				t.Errorf("flows of %v are looked at, want both families", families)
			}
			p.Distrust()
			mustSync(t, p)
			if f := of.OwnerOfFlow(of.Snapshot(), netip.MustParseAddrPort("192.0.2.1:53"), 1); f != nil {
				t.Error("it recalls them again at the next complete sync")
			}
		})
	}
}

// TestWhatCannotBeRecalledDoesNotKeepAProxyFromStarting, nor does it make the tables anew.
func TestWhatCannotBeRecalledDoesNotKeepAProxyFromStarting(t *testing.T) {
	kernel := &scriptedKernel{}
	earlier := starting(kernel)
	earlier.Apply(oneService(nameService("dns", "10.96.0.1"), nil))
	mustSync(t, earlier)
	kernel.unreadable = errInjected
	var unrecalled error
	of := traffic.NewReader(0)
	of.Unrecalled = func(err error) { unrecalled = err }
	p := starting(kernel, of)
	p.Apply(oneService(nameService("dns", "10.96.0.1"), nil))
	if mustSync(t, p); !errors.Is(unrecalled, errInjected) {
		t.Errorf("reported %v, want the injected error", unrecalled)
	}
	unrecalled = nil
	p.Distrust()
	if mustSync(t, p); unrecalled != nil {
		t.Errorf("reported %v at the second sync", unrecalled)
	}
	if slices.ContainsFunc(kernel.batches, rebuilds) {
		t.Error("the tables were made anew")
	}
}

// TestTheEndpointsOfNodePortsAreReadWithinABound: a dump costs the square of its size, and only UDP needs it.
func TestTheEndpointsOfNodePortsAreReadWithinABound(t *testing.T) {
	many := make([]int, 201)
	for i := range many {
		many[i] = i + 1
	}
	services := func(count int, edits ...func(*model.Service)) model.Change {
		change := model.Change{}
		for number := range count {
			name := fmt.Sprintf("s%d", number)
			service := nameService(name, fmt.Sprintf("10.96.1.%d", number+1), append(edits, nodePort(uint16(30000+number)))...)
			change = change.Then(oneService(service, answeredBy(name, many...)))
		}
		return change
	}
	for name, test := range map[string]struct {
		change  model.Change
		isRead  bool
		isError bool
	}{
		"TCP alone":      {services(2, port(model.TCP, 53)), false, false},
		"a few of UDP":   {services(2), true, false},
		"far too many":   {services(100), false, true},
		"no UDP serving": {oneService(nameService("dns", "10.96.0.1", nodePort(30053)), nil), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			earlier := starting(kernel)
			earlier.Apply(test.change)
			for report := mustSync(t, earlier); report.Waiting > 0; report = mustSync(t, earlier) {
			}
			kernel.reads = nil
			var unrecalled error
			of := traffic.NewReader(0)
			of.Unrecalled = func(err error) { unrecalled = err }
			p := starting(kernel, of)
			p.Apply(test.change)
			mustSync(t, p)
			if isRead := slices.Contains(kernel.reads, ruleset.NodePortEndpoints.Name); isRead != test.isRead {
				t.Errorf("the sets %v were read", kernel.reads)
			}
			if (unrecalled != nil) != test.isError || errors.Is(unrecalled, errInjected) {
				t.Errorf("reported %v", unrecalled)
			}
		})
	}
}
