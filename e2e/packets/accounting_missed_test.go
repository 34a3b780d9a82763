package packets_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/accounting"
	entries "github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// entries returns the conntrack entries of the client's node.
func (c *countingCluster) entries() (table *entries.Table) {
	c.t.Helper()
	must.Succeed(c.t, c.nodes[0].Do(func() (err error) { table, err = entries.OpenCurrent(c.t); return err }))
	return table
}

// dial opens a connection for transfers to the Service.
func (c *countingCluster) dial(to netip.AddrPort) net.Conn {
	c.t.Helper()
	conn, err := c.client.Dial("tcp", to.String(), fabric.Timeout)
	must.Succeed(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	must.Succeed(c.t, fabric.Blackhole(conn))
	return conn
}

func clusterIP(family model.Family) netip.AddrPort {
	return netip.AddrPortFrom(web.addr(model.ClusterIP, family), servicePort)
}

// newTransfers returns a cluster that counts traffic, with an endpoint for transfers on another node.
func newTransfers(t *testing.T) *countingCluster {
	t.Helper()
	c := newCountingCluster(t)
	_, err := c.far.ServeTransfers(podPort + 1)
	must.Succeed(t, err)
	c.apply(c.transfersTo(c.far).Merge(service(web.withNodePorts, topologyKeys(policy.Hostname, policy.AnyNode))))
	return c
}

// TestADialIsRepliedRefusedOrUnreplied checks the three outcomes of a connection attempt over both families, ClusterIPs
// and node ports, in the counts of the node and of the Service.
func TestADialIsRepliedRefusedOrUnreplied(t *testing.T) {
	t.Parallel()
	c := newCountingCluster(t)
	closed := &pod{Pod: c.addPod(c.nodes[1], "closed"), zone: c.far.zone}
	unresponsive := c.addUnresponsive(c.nodes[1])
	var dials []netip.AddrPort
	for _, p := range web.paths(c.nodes[0], model.ClusterIP, model.NodePort) {
		if p.network == "tcp" {
			dials = append(dials, p.addr)
		}
	}
	const times = 3
	dial := func(want func(error) bool) {
		t.Helper()
		for range times {
			for _, to := range dials {
				if _, err := c.client.Request("tcp", to, immediateTimeout); !want(err) {
					t.Fatalf("unexpected outcome of a connection to %s: %v", to, err)
				}
			}
		}
	}
	dial(func(err error) bool { return err == nil })
	c.apply(endpoints(closed))
	dial(func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) })
	c.apply(endpoints(unresponsive))
	dial(func(err error) bool { return err != nil && !errors.Is(err, syscall.ECONNREFUSED) })
	c.deleteEntries()
	each := uint64(times * len(dials))
	c.expect("the outcomes", otherZone, func(got accounting.Count) error {
		if got.Connections != each || got.Refused != each || got.Unreplied != each || each == 0 {
			return fmt.Errorf("%+v, want %d of each outcome", got, each)
		}
		return nil
	})
}

// TestCountersThatAreSetToZeroAreNoticed checks that the bytes before and after a reset of conntrack's counters count
// once.
func TestCountersThatAreSetToZeroAreNoticed(t *testing.T) {
	t.Parallel()
	c := newTransfers(t)
	conn, table := c.dial(clusterIP(model.IPv4)), c.entries()
	must.Succeed(t, fabric.Transfer(conn, 10_000_000, 5_000_000))
	c.waitForDumps(2)
	c.expect("before", otherZone, approximately(1, 1, 10_000_000, 5_000_000))
	must.Succeed(t, table.ZeroCounters(model.IPv4))
	wait.Equal(t, "connections whose counters were set to zero", 1, func() uint64 { return c.accounts[0].Counters.State().CountersReset })
	must.Succeed(t, fabric.Transfer(conn, 2_000_000, 1_000_000))
	must.Succeed(t, conn.Close())
	c.deleteEntries()
	c.expect("after", otherZone, approximately(2, 1, 12_000_000, 6_000_000))
}

// TestAnotherProgramsConnectionIsNotOurs sends another program's connections to the number of a node port, to the
// address of a Service, and to an endpoint of the Service. They do not count once a dump has shown that they lack our
// label. Connections that our tables translate at the same time count.
func TestAnotherProgramsConnectionIsNotOurs(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]model.FrontendKind{"a ClusterIP": model.ClusterIP, "a node port": model.NodePort} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTransfers(t)
			to := clusterIP(model.IPv4)
			if kind == model.NodePort {
				to = netip.AddrPortFrom(c.nodes[0].IPv4, web.nodePort())
			}
			const chain = "table ip intruder {\n chain first {\n type nat hook prerouting priority dstnat - 1;\n" +
				" ip daddr %s tcp dport %d dnat to %s:%d\n }\n}\n"
			runNFT(t, c.nodes[0], fmt.Sprintf(chain, to.Addr(), to.Port(), c.far.IPv4, podPort+1), "-f", "-")
			foreign := c.dial(to)
			runNFT(t, c.nodes[0], "delete table ip intruder\n", "-f", "-")
			must.Succeed(t, fabric.Transfer(foreign, 4_000_000, 4_000_000))
			c.waitForDumps(2)
			if all := totals(c.accounts[0]); len(all) > 0 {
				t.Errorf("another program's open connection was counted: %+v", all)
			}
			must.Succeed(t, foreign.Close())
			c.deleteEntries()
			wait.Equal(t, "connections of other programs", 1, func() uint64 { return c.accounts[0].Counters.State().OtherProgram })
			if all := totals(c.accounts[0]); len(all) > 0 {
				t.Errorf("another program's connection was counted when it ended: %+v", all)
			}

			conn := c.dial(to)
			must.Succeed(t, fabric.Transfer(conn, 4_000_000, 4_000_000))
			must.Succeed(t, conn.Close())
			c.deleteEntries()
			c.expect("ours", otherZone, approximately(1, 1, 4_000_000, 4_000_000))
		})
	}
}
