package packets_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestADatagramSenderGetsTheICMPError expects ECONNREFUSED, the kernel's error for ICMP port unreachable, or EPERM on
// the node, where the datagram is stopped on its way out.
func TestADatagramSenderGetsTheICMPError(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	r.apply(service(web.withEverything))
	for _, test := range []struct {
		client *fabric.Namespace
		want   syscall.Errno
	}{{r.pod, syscall.ECONNREFUSED}, {r.host, syscall.ECONNREFUSED}, {r.node, syscall.EPERM}} {
		to := overNetworks(web.paths(r.nodes[0], allKinds...), "udp", "sctp")
		expect(t, "no endpoint", []*fabric.Namespace{test.client}, to, func(from *fabric.Namespace, to path) error {
			if _, err := from.Request(to.network, to.addr, fabric.Timeout); !errors.Is(err, test.want) {
				return fmt.Errorf("%w, want %w", replyError(err), test.want)
			}
			return nil
		})
	}
}

// TestPingToAClusterIPGetsPortUnreachable also checks that on the node itself sending fails at once.
func TestPingToAClusterIPGetsPortUnreachable(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	r.apply(service().Merge(endpoints(r.near)))
	for _, client := range r.clients() {
		for _, addr := range web.addrs(model.ClusterIP) {
			if err := expectPingRefused(client, addr); err != nil {
				t.Error(err)
			}
		}
	}
}

func expectPingRefused(from *fabric.Namespace, addr netip.Addr) error {
	echo, err := from.Ping(addr, fabric.Timeout)
	if isNode(from) && errors.Is(err, syscall.EPERM) {
		return nil
	}
	wantType, wantCode := 3, 3
	if addr.Is6() {
		wantType, wantCode = 1, 4
	}
	if err != nil || echo.Type != wantType || echo.Code != wantCode {
		return fmt.Errorf("ping from %s to %s: %+v, %w, want type %d, code %d", from.Name, addr, echo, err, wantType, wantCode)
	}
	return nil
}

// TestPingToAnUnallocatedClusterIPIsDropped has a machine that would reply if the request left the node. On the node
// itself sending fails.
func TestPingToAnUnallocatedClusterIPIsDropped(t *testing.T) {
	t.Parallel()
	c, clients := newUnallocated(t)
	expectPing := func(desc string, should func(from *fabric.Namespace, echo fabric.Echo, err error) bool) {
		t.Helper()
		for _, client := range clients {
			for _, addr := range unallocated {
				echo, err := client.Ping(addr, immediateTimeout)
				for range 3 { // a busy machine may reply late
					if !should(client, echo, err) {
						echo, err = client.Ping(addr, immediateTimeout)
					}
				}
				if !should(client, echo, err) {
					t.Errorf("%s: unexpected outcome of ping from %s to %s: %+v, %v", desc, client.Name, addr, echo, err)
				}
			}
		}
	}
	isReply := func(_ *fabric.Namespace, echo fabric.Echo, err error) bool {
		return err == nil && slices.Contains(unallocated, echo.From)
	}
	expectPing("no ServiceCIDR", isReply)
	c.apply(serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6))
	expectPing("the ServiceCIDR exists", func(from *fabric.Namespace, _ fabric.Echo, err error) bool {
		return errors.Is(err, os.ErrDeadlineExceeded) && !isNode(from) || errors.Is(err, syscall.EPERM) && isNode(from)
	})
	c.apply(serviceCIDR())
	expectPing("the ServiceCIDR was deleted", isReply)
}
