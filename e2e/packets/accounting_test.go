package packets_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/accounting"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/conntrackgc"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// countingCluster is a cluster of two nodes in two zones that count traffic by Service and dump conntrack every second.
type countingCluster struct {
	*cluster
	client    *fabric.Pod
	near, far *pod
	accounts  [2]*accounting.Accounting
}

func newCountingCluster(t *testing.T) *countingCluster {
	t.Helper()
	c := &countingCluster{cluster: newCluster(t, 2)}
	c.client = c.addPod(c.nodes[0], "client")
	c.near, c.far = c.addServer(c.nodes[0], "near"), c.addServer(c.nodes[1], "far")
	for i := range c.nodes {
		c.accounts[i] = c.startCounting(c.nodes[i])
	}
	c.apply(service(web.withNodePorts, topologyKeys(policy.Hostname, policy.AnyNode)).Merge(endpoints(c.far)))
	c.waitForDumps(1)
	return c
}

// startCounting makes a node count until the test ends.
func (c *countingCluster) startCounting(n *node) *accounting.Accounting {
	c.t.Helper()
	if err := n.Do(nft.CountBytes); err != nil {
		c.t.Fatal(err)
	}
	accounts := accounting.New(
		accounting.Settings{PerService: true, MaxServices: 10, Keys: []string{string(policy.Hostname)}},
		serviceindex.New(conntrackgc.StaleEntryWindow),
		accounting.Kernel{
			Table: conntrack.NewDumpScheduler(n.flows, nil), Subscribe: n.flows.Subscribe, DumpInterval: time.Second,
		}, slog.New(slog.DiscardHandler))
	n.handlers = append(n.handlers, accounts.Index)
	c.restart(n)
	c.sync(n)
	ctx, stop := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = accounts.Run(ctx) // always nil
	}()
	c.t.Cleanup(func() { stop(); <-done })
	return accounts
}

// waitForDumps waits for the given number of further complete dumps on the client's node.
func (c *countingCluster) waitForDumps(more uint64) {
	c.t.Helper()
	want := c.accounts[0].Dumps() + more
	wait.Until(c.t, "more conntrack dumps", func() bool { return c.accounts[0].Dumps() >= want })
}

// deleteEntries deletes all conntrack entries that the client's node translated.
func (c *countingCluster) deleteEntries() {
	c.t.Helper()
	n := c.nodes[0]
	var all []conntrack.Entry
	_, err := n.flows.Dump(c.t.Context(), conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT},
		func(e *conntrack.Entry) bool { all = append(all, *e); return true })
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range all {
		if _, err := n.flows.Delete(&all[i]); err != nil {
			c.t.Fatal(err)
		}
	}
}

// totals returns the counts of a node by locality and tier.
func totals(accounts *accounting.Accounting) map[string]accounting.Count {
	all := map[string]accounting.Count{}
	accounts.Counters.Node(func(row accounting.Row) { all[row.Proximity.String()+" "+row.Tier] = row.Count })
	return all
}

// expect waits until check accepts the counts of the client's node in one series, the node has no counts in other
// series, and the Service has the same counts. It retries, because traffic may be counted between the reads of both.
func (c *countingCluster) expect(desc string, series string, check func(accounting.Count) error) {
	c.t.Helper()
	wait.Success(c.t, desc, func() error {
		all := totals(c.accounts[0])
		if len(all) > 1 {
			return fmt.Errorf("counted in other series, too: %+v", all)
		}
		byService := accounting.Count{}
		c.accounts[0].Counters.Services(func(row accounting.Row) {
			if row.Service != web.objectName() {
				c.t.Errorf("%s: counted for %s", desc, row.Service)
			}
			byService = row.Count
		})
		if byService != all[series] {
			return fmt.Errorf("count %+v for the Service, %+v for the node", byService, all[series])
		}
		return check(all[series])
	})
	if other := totals(c.accounts[1]); len(other) > 0 {
		c.t.Errorf("%s: the endpoint's node has counts, too: %+v", desc, other)
	}
}

func connections(want uint64) func(accounting.Count) error {
	return func(got accounting.Count) error {
		if got.Connections != want || got.Unreplied != 0 || got.Sent == 0 || got.Received == 0 {
			return fmt.Errorf("%+v, want %d connections", got, want)
		}
		return nil
	}
}

const (
	otherZone = "other_zone *"
	sameNode  = "same_node " + string(policy.Hostname)
)

// TestConnectionsAreCounted covers TCP, UDP and SCTP, both families, ClusterIPs and node ports.
func TestConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	c := newCountingCluster(t)
	all := web.paths(c.nodes[0], model.ClusterIP, model.NodePort)
	const each = 3
	for range each {
		for _, p := range all {
			mustRequest(t, c.client.Namespace, p)
		}
	}
	c.deleteEntries()
	c.expect("to another zone", otherZone, connections(uint64(each*len(all))))
}

// transfersTo returns the Service with the given pods as endpoints, on their port for transfers.
func (c *countingCluster) transfersTo(pods ...*pod) model.Change {
	change := service(topologyKeys(policy.Hostname, policy.AnyNode)).Merge(endpoints(pods...))
	for _, slice := range change.Slices {
		for i := range slice.Ports {
			slice.Ports[i].Port = podPort + 1
		}
	}
	return change
}

// approximately returns a check of TCP bytes: the payload plus headers, which are at most 72 bytes of each 1,500, and
// at most an acknowledgement of 72 bytes for each segment of the other direction, because a busy machine coalesces few.
func approximately(step uint64, connections, sent, received int) func(accounting.Count) error {
	isInRange := func(got uint64, want, other int) bool {
		return got >= uint64(want) && float64(got) <= float64(want)*1500/1428+float64(other)*72/1428+2000
	}
	return func(got accounting.Count) error {
		if got.Connections != uint64(connections) || !isInRange(got.Sent, sent, received) || !isInRange(got.Received, received, sent) {
			return fmt.Errorf("step %d: got %+v, want %d connections, %d bytes sent and %d received", step, got, connections, sent, received)
		}
		return nil
	}
}

// TestBytesAreCounted checks that a connection's bytes count in both directions while it is open and when it ends.
// Bytes from before the start of counting do not count.
func TestBytesAreCounted(t *testing.T) {
	t.Parallel()
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			c := newCountingCluster(t)
			if _, err := c.far.ServeTransfers(podPort + 1); err != nil {
				t.Fatal(err)
			}
			c.apply(c.transfersTo(c.far))
			conn, err := c.client.Dial("tcp", netip.AddrPortFrom(web.addr(model.ClusterIP, family), servicePort).String(), fabric.Timeout)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			move := func(sent, received int) {
				t.Helper()
				if err := fabric.Transfer(conn, sent, received); err != nil {
					t.Fatal(err)
				}
			}
			move(10_000_000, 5_000_000)
			c.expect("while it is open", otherZone, approximately(1, 1, 10_000_000, 5_000_000))
			move(1_000_000, 7_000_000)
			c.expect("after more transfers", otherZone, approximately(2, 1, 11_000_000, 12_000_000))

			second := c.startCounting(c.nodes[0]) // another proxy, as after a restart
			c.accounts[0], second = second, c.accounts[0]
			c.waitForDumps(2)
			move(2_000_000, 3_000_000)
			c.deleteEntries()
			c.expect("transfers since a restart", otherZone, approximately(3, 0, 2_000_000, 3_000_000))
			if got := totals(second)[otherZone]; got.Connections != 1 {
				t.Errorf("counts before the restart: %+v, want one connection", got)
			}
		})
	}
}

// TestBytesOfUDPAreExact checks the exact counts: each datagram has 28 bytes of headers.
func TestBytesOfUDPAreExact(t *testing.T) {
	t.Parallel()
	c := newCountingCluster(t)
	c.apply(endpoints(c.near))
	conn, err := c.client.Dial("udp", netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort).String(), fabric.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	received := 0
	response := make([]byte, 2000)
	for range 100 {
		if _, err := conn.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(fabric.Timeout)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(response)
		if err != nil {
			t.Fatal(err)
		}
		received += n
	}
	c.deleteEntries()
	want := accounting.Count{Connections: 1, Traffic: accounting.Traffic{Sent: 100 * 1028, Received: uint64(received + 100*28)}}
	c.expect("a flow that ended between two dumps", sameNode, func(got accounting.Count) error {
		if got != want {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})
}

// TestAnUnrepliedDialIsNoConnection also checks that connections that other programs translate do not count.
func TestAnUnrepliedDialIsNoConnection(t *testing.T) {
	t.Parallel()
	c := newCountingCluster(t)
	c.apply(endpoints(c.addUnresponsive(c.nodes[1])))
	dial := netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort)
	if _, err := c.client.Request("tcp", dial, immediateTimeout); err == nil {
		t.Fatal("the connection attempt got a reply")
	}
	c.deleteEntries()
	c.expect("a dial", otherZone, func(got accounting.Count) error {
		if got.Connections != 0 || got.Unreplied != 1 || got.Received != 0 {
			return fmt.Errorf("%+v, want one unreplied connection attempt", got)
		}
		return nil
	})

	before := totals(c.accounts[0])[otherZone]
	foreign := path{"tcp", netip.AddrPortFrom(c.nodes[0].IPv4, 8080)}
	remove := addForeignDNAT(t, c.nodes[0], []path{foreign}, c.far)
	mustRequest(t, c.client.Namespace, foreign)
	remove()
	c.deleteEntries()
	wait.Until(t, "the connection over the port mapping has ended", func() bool { return c.accounts[0].Counters.State().OtherProgram == 1 })
	if after := totals(c.accounts[0]); after[otherZone] != before || len(after) != 1 {
		t.Errorf("a port mapping is counted: %+v", after)
	}
}
