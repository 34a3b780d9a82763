//go:build linux

package nft

import (
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// serve adds the endpoint to the addresses of the namespace's loopback, routes the service's address there, and listens
// on the endpoint.
func serve(t *testing.T, namespace *netns.Namespace, family model.Family) {
	t.Helper()
	addrs := addressesOf(family)
	namespace.Do(func() {
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range []net.IP{addrs.endpoint.AsSlice(), addrs.service.AsSlice()} {
			full := net.CIDRMask(8*len(addr), 8*len(addr))
			if err := netlink.AddrAdd(loopback, &netlink.Addr{IPNet: &net.IPNet{IP: addr, Mask: full}, Flags: unix.IFA_F_NODAD}); err != nil {
				t.Fatal(err)
			}
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(addrs.endpoint.String(), "8080"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
	})
}

// connect opens a connection to the service from the endpoint's own address, and closes it.
func connect(t *testing.T, namespace *netns.Namespace, family model.Family) {
	t.Helper()
	addrs := addressesOf(family)
	namespace.Do(func() {
		dialer := net.Dialer{Timeout: wait.Timeout, LocalAddr: &net.TCPAddr{IP: addrs.endpoint.AsSlice()}}
		connection, err := dialer.Dial("tcp", net.JoinHostPort(addrs.service.String(), "80"))
		if err != nil {
			t.Fatalf("connect to the service: %v", err)
		}
		_ = connection.Close()
	})
}

// everythingWithAffinity returns everything, so that connections reach the endpoint and are stored for the timeout.
func everythingWithAffinity(family model.Family, timeout time.Duration) ruleset.Batch {
	batch := operations{everything(family)}
	frontend := ruleset.Tuple{Addr: addressesOf(family).service, Proto: model.TCP, Port: 80}
	class := ruleset.Element{Key: frontend, Value: ruleset.Tuple{Number: uint32(ruleset.BalanceClass(3))}}
	batch.elements(ruleset.Delete, family, ruleset.Services, class)
	class.Value.Number = stickyClass
	batch.elements(ruleset.Add, family, ruleset.Services, class)
	batch.do(ruleset.Flush, family, ruleset.SetObject{Set: ruleset.StickyEndpoints})
	for number := range uint32(3) {
		batch.elements(ruleset.Add, family, ruleset.StickyEndpoints, ruleset.Element{
			Key: numbered(frontend, ruleset.ClusterSlot+number), Value: ruleset.Tuple{Number: stickyEndpoint},
		})
	}
	chain := affinityChain(timeout)
	return batch.do(ruleset.Flush, family, ruleset.ChainObject{Chain: chain}).
		do(ruleset.Add, family, ruleset.RulesObject{Chain: chain}).
		do(ruleset.Flush, family, ruleset.SetObject{Set: affinity}).Batch
}

// affinityElement returns the element that a connection leaves in the affinity map.
func affinityElement(family model.Family) ruleset.Element {
	return ruleset.Element{
		Key: ruleset.Tuple{Number: stickyPort, Addr: addressesOf(family).endpoint}, Value: ruleset.Tuple{Number: stickyEndpoint},
	}
}

func TestPacketsReachTheEndpointAndAreStored(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			namespace := netns.New(t)
			serve(t, namespace, family)
			c := dial(t, namespace, Options{})
			commit(t, c, everythingWithAffinity(family, time.Hour))

			connect(t, namespace, family)
			if diff := cmp.Diff([]ruleset.Element{affinityElement(family)}, elementsOf(t, c, family, affinity), comparableElements); diff != "" {
				t.Fatalf("the affinity map after a connection (-want +got):\n%s", diff)
			}
			connect(t, namespace, family) // through the affinity map

			// The element may have expired in between. If it is added first, every kernel can delete it; DESTROYSETELEM would
			// need Linux 6.3.
			var o operations
			o.elements(ruleset.Add, family, affinity, affinityElement(family)).elements(ruleset.Delete, family, affinity, affinityElement(family))
			commit(t, c, o.Batch)
			if diff := cmp.Diff([]ruleset.Element{}, elementsOf(t, c, family, affinity), comparableElements, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the affinity map after the deletion (-want +got):\n%s", diff)
			}
			connect(t, namespace, family)
			if got := elementsOf(t, c, family, affinity); len(got) != 1 {
				t.Errorf("after the deletion a new connection adds %v, want one element", got)
			}
		})
	}
}

func TestAnExpiredElementCanBeDeleted(t *testing.T) {
	namespace := netns.New(t)
	serve(t, namespace, model.IPv4)
	c := dial(t, namespace, Options{})
	commit(t, c, everythingWithAffinity(model.IPv4, time.Second))
	connect(t, namespace, model.IPv4)
	if got := elementsOf(t, c, model.IPv4, affinity); len(got) != 1 {
		t.Fatalf("the affinity map holds %v, want the client", got)
	}
	time.Sleep(1100 * time.Millisecond)
	var o operations
	o.elements(ruleset.Add, model.IPv4, affinity, affinityElement(model.IPv4)).elements(ruleset.Delete, model.IPv4, affinity,
		affinityElement(model.IPv4))
	commit(t, c, o.Batch)
	if got := elementsOf(t, c, model.IPv4, affinity); len(got) != 0 {
		t.Errorf("the affinity map holds %v, want nothing", got)
	}
}
