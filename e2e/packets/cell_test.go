package packets_test

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// cell is a cell of the packet matrix, for connections from one kind of client to one frontend: which endpoints
// respond, and whether the server sees the client or the node that translated the connection.
type cell string

// These are the cells of the matrix. All means the endpoints of the whole cluster, Local those on the node itself.
const (
	all       cell = "all"
	allMasq   cell = "all, masq"
	local     cell = "local"
	localMasq cell = "local, masq"
)

func (c cell) isLocal() bool { return strings.HasPrefix(string(c), "local") }

func (c cell) isMasqueraded() bool { return strings.HasSuffix(string(c), "masq") }

// These are the numbers of connections that test a cell. With two endpoints, chance sends maxConnections to the same
// one once in 2^31 runs. Where only one endpoint may respond, chance hides a second one in one of 2^localConnections
// runs for each path; that it does so for all paths of a row of the matrix never happens.
const (
	fewestConnections = 4
	maxConnections    = 32
	localConnections  = 8
)

// expectation returns the check for a cell. near is the endpoint on the node through which all clients dial, far is the
// other endpoint.
func (c cell) expectation(node *node, near, far *pod) expectation {
	return func(from *fabric.Namespace, to path) error {
		seen := map[string]bool{}
		kept, translated := 0, 0
		for number := 1; number <= maxConnections; number++ {
			reply, err := from.Request(to.network, to.addr, fabric.Timeout)
			if err != nil {
				return fmt.Errorf("connection %d: %w", number, err)
			}
			if err := c.checkSource(reply, to.clientAddr(node.Namespace), from == node.Namespace); err != nil {
				return fmt.Errorf("connection %d: %w", number, err)
			}
			seen[reply.Pod] = true
			if reply.Client == reply.Local {
				kept++
			} else {
				translated++
			}
			if c.isLocal() && seen[far.Name] {
				return fmt.Errorf("connection %d: %s replied, want %s only", number, far.Name, near.Name)
			}
			isComplete := !c.isLocal() && len(seen) == 2 && number >= fewestConnections || c.isLocal() && number == localConnections
			if isComplete {
				return c.checkPorts(kept, translated)
			}
		}
		return fmt.Errorf("only %v replied, want %s and %s", seen, near.Name, far.Name)
	}
}

// checkSource checks the client address that the server saw.
func (c cell) checkSource(reply fabric.Reply, node netip.Addr, fromNode bool) error {
	want := reply.Local.Addr()
	if c.isMasqueraded() || fromNode {
		want = node
	}
	if reply.Client.Addr() != want {
		return fmt.Errorf("%s saw %s, want %s", reply.Pod, reply.Client.Addr(), want)
	}
	return nil
}

// checkPorts distinguishes a masqueraded connection of the node itself from one that is not masqueraded: both have the
// node's address. Masquerading picks one of 64512 ports at random; without it, a port changes only if conntrack already
// has that very connection. So some port must change if the connections are masqueraded, and some port must stay if
// they are not.
func (c cell) checkPorts(kept, translated int) error {
	if c.isMasqueraded() && translated == 0 {
		return fmt.Errorf("all %d connections kept their source port, want them masqueraded", kept)
	}
	if !c.isMasqueraded() && kept == 0 {
		return fmt.Errorf("all %d connections got another source port, want it unchanged", translated)
	}
	return nil
}
