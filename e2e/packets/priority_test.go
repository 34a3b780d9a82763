package packets_test

import (
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// priorityCounters is a table that counts packets that leave the node, after all our chains: those with one of our priorities,
// those with priority 5, and all.
const priorityCounters = `
table inet witness {
	chain leaving {
		type filter hook postrouting priority 300; policy accept;
		meta priority e000:0-ffff:ffff counter comment "ours"
		meta priority 0:5 counter comment "five"
		counter comment "any"
	}
}
`

// TestNoPacketLeavesWithAPriorityOfOurs covers every frontend, policy and client. The first packet's priority carries
// classes and slots, but only to the next rule. A packet to no Service keeps its original priority.
func TestNoPacketLeavesWithAPriorityOfOurs(t *testing.T) {
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	node := c.nodes[0]
	runNFT(t, node, priorityCounters, "-f", "-")
	for _, test := range []struct {
		desc string
		edit func(*model.Service)
	}{
		{"both policies Cluster", func(*model.Service) {}},
		{"internalTrafficPolicy Local", internalLocal},
		{"externalTrafficPolicy Local", externalLocal},
		{"session affinity", affinity(affinityHour)},
	} {
		c.apply(service(web.withEverything, test.edit).Merge(endpoints(c.near, c.far)))
		before := counterPackets(t, node, "any")
		for range 2 {
			expect(t, test.desc, c.clients(), web.paths(node, allKinds...), succeeds)
		}
		if got := counterPackets(t, node, "ours"); got != "0" {
			t.Errorf("%s: %s packets left with one of our priorities", test.desc, got)
		}
		if counterPackets(t, node, "any") == before {
			t.Errorf("%s: no packet left, so nothing was tested", test.desc)
		}
	}
	sendWithPriority(t, node.Namespace, c.far, 5)
	if got := counterPackets(t, node, "five"); got != "1" {
		t.Errorf("%s packets left with priority 5, want 1", got)
	}
}

func sendWithPriority(t *testing.T, from *fabric.Namespace, to *pod, priority int) {
	t.Helper()
	conn, err := from.Dial("udp", net.JoinHostPort(to.IPv4.String(), "9"), fabric.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		optErr = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PRIORITY, priority)
	}); err != nil || optErr != nil {
		t.Fatal(err, optErr)
	}
	if _, err := conn.Write([]byte("!")); err != nil {
		t.Fatal(err)
	}
}

// counterPackets returns the value of a counter of the node.
func counterPackets(t *testing.T, n *node, comment string) string {
	t.Helper()
	listing := runNFT(t, n, "", "list", "table", "inet", "witness")
	match := regexp.MustCompile(`counter packets (\d+) bytes \d+ comment "` + comment + `"`).FindStringSubmatch(listing)
	if match == nil {
		t.Fatalf("nft lists no counter %q:\n%s", comment, listing)
	}
	return match[1]
}

// runNFT runs nft on a node.
func runNFT(t *testing.T, n *node, input string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "nft", args...)
	command.Stdin = strings.NewReader(input)
	output, err := n.Run(command)
	must.Succeed(t, err)
	return output
}
