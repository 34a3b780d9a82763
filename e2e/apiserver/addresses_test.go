package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// addressWatch records the addresses of the proxies on all nodes that a Watcher reports.
type addressWatch struct {
	mutex      sync.Mutex
	nodes      map[string]*model.Node
	reportedAt []time.Time
}

// newAddressWatch watches the slices of the proxies' Service until the test ends.
func newAddressWatch(t *testing.T, proxies model.ObjectName) *addressWatch {
	t.Helper()
	w := &addressWatch{}
	watcher, err := apiserver.New(admin(), apiserver.Options{
		View: convert.View{Node: proxies.Namespace + "-self", Proxies: proxies}, Log: slog.New(slog.DiscardHandler), OnProxyAddresses: w.record,
		OnInterrupted: func(string, time.Time, error) {}, OnResumed: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watcher.Run(ctx, func(convert.Update) {}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *addressWatch) record(nodes map[string]*model.Node) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.nodes, w.reportedAt = maps.Clone(nodes), append(w.reportedAt, time.Now())
}

// count returns the number of reports.
func (w *addressWatch) count() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.reportedAt)
}

// text returns the last report: each node with its zone and address.
func (w *addressWatch) text() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		all = append(all, fmt.Sprint(name, "/", w.nodes[name].Labels[string(policy.Zone)], "=", w.nodes[name].Addresses[0]))
	}
	return strings.Join(all, " ")
}

// proxyEndpoint returns an endpoint of a proxy, as the EndpointSlice controller writes it.
func proxyEndpoint(address, node, zone string, isReady bool) string {
	return fmt.Sprintf(`{"addresses":[%q],"nodeName":%q,"zone":%q,"conditions":{"ready":%t}}`, address, node, zone, isReady)
}

func endpointsPatch(endpoints ...string) string {
	return `{"endpoints":[` + strings.Join(endpoints, ",") + `]}`
}

// TestAddressesOfOtherProxies checks that the addresses come from the slices of the proxies' own Service, ready or
// not and in either family, and not from slices of other Services.
func TestAddressesOfOtherProxies(t *testing.T) {
	w := newWriter(t)
	w.slice("proxies-1", "proxies", "192.0.2.1")
	w.patchSlice("proxies-1", endpointsPatch(
		proxyEndpoint("192.0.2.1", "one", "zone-a", true), proxyEndpoint("192.0.2.2", "two", "zone-b", false),
		`{"addresses":["192.0.2.9"],"conditions":{"ready":true}}`,
	))
	w.slice("others-1", "others", "192.0.2.3")
	w.patchSlice("others-1", endpointsPatch(proxyEndpoint("192.0.2.3", "three", "zone-c", true)))
	p := newAddressWatch(t, w.name("proxies"))
	until := func(what, want string) {
		t.Helper()
		wait.Equal(t, what, want, p.text)
	}
	until("only the nodes of the proxies", "one/zone-a=192.0.2.1 two/zone-b=192.0.2.2")

	ipv6Slice := objects.Slice(w.namespace, "proxies-2", "proxies")
	ipv6Slice.AddressType = discoveryv1.AddressTypeIPv6
	api.Create(w.t, ipv6Slice)
	w.patchSlice("proxies-2", endpointsPatch(
		proxyEndpoint("2001:db8::1", "one", "zone-a", true), proxyEndpoint("2001:db8::4", "four", "zone-a", true),
	))
	until("a node with two addresses is dialled at its IPv4 address", "four/zone-a=2001:db8::4 one/zone-a=192.0.2.1 two/zone-b=192.0.2.2")
	w.patchSlice("proxies-1", endpointsPatch(proxyEndpoint("192.0.2.77", "one", "zone-a", true)))
	until("a new address, and a removed node", "four/zone-a=2001:db8::4 one/zone-a=192.0.2.77")
	w.deleteSlice("proxies-1")
	until("a deleted slice", "four/zone-a=2001:db8::4 one/zone-a=2001:db8::1")
	w.deleteSlice("proxies-2")
	until("all slices are deleted", "")
}

// TestProxyRolloutIsReportedAtMostOncePerSecond limits the reports during a rollout, in which each proxy that starts
// changes a slice.
func TestProxyRolloutIsReportedAtMostOncePerSecond(t *testing.T) {
	w := newWriter(t)
	w.slice("proxies-1", "proxies", "192.0.2.1")
	p := newAddressWatch(t, w.name("proxies"))
	wait.Until(t, "the first report of addresses", func() bool { return p.count() > 0 })
	for i := range 60 {
		w.patchSlice("proxies-1", endpointsPatch(proxyEndpoint("192.0.2.1", "one", "zone-a", i%2 == 1)))
		time.Sleep(50 * time.Millisecond)
	}
	wait.Equal(t, "the last state", "one/zone-a=192.0.2.1", p.text)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	// The minimum pause starts after the previous report was delivered, and a busy machine makes it longer.
	for i := 1; i < len(p.reportedAt); i++ {
		if pause := p.reportedAt[i].Sub(p.reportedAt[i-1]); pause < time.Second {
			t.Errorf("reported again after %v, want at least 1 s", pause)
		}
	}
	if len(p.reportedAt) < 2 {
		t.Errorf("reported %d times, want at least 2", len(p.reportedAt))
	}
}
