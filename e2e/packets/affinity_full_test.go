package packets_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// full is how many clients the kernel lets a map remember that has no size of its own.
const full = 65535

// TestACrowdOfClientsDisturbsNobodyElse: when as many clients are remembered as the kernel allows, the Service goes on to balance new
// ones, only without affinity; and another Service remembers its clients as before.
func TestACrowdOfClientsDisturbsNobodyElse(t *testing.T) {
	c := setUp(t, setup{nodes: 1, config: clusterCIDR(), notOwned: true})
	node := c.nodes[0]
	servers := []*pod{c.addServer(node, "a"), c.addServer(node, "b")}
	client := c.addPod(node, "client").Namespace
	other := app{"other", 11}
	c.apply(service(web.withEverything, affinity(anHour)).Then(endpoints(servers...)))
	c.apply(other.service(affinity(anHour)).Then(other.endpoints(servers...)))
	others := only(other.paths(node, allKinds[0]), "tcp")[0]
	own := sticks(t, client, others, 8)

	fill(t, node, "ip", "default/web/tcp/", servers[0].IPv4)
	answered := map[string]bool{}
	for range mostConnections {
		answered[mustAsk(t, client, paths[0]).Pod] = true
	}
	if len(answered) != 2 {
		t.Errorf("of the full Service only %v answer a client that could not be remembered", answered)
	}
	if got := sticks(t, client, others, 8); got != own {
		t.Errorf("the other Service's client is with %s now, and was with %s", got, own)
	}
	stranger := c.addPod(node, "stranger").Namespace
	sticks(t, stranger, others, mostConnections)
	expect(t, "the other protocols of the full Service", []*fabric.Namespace{client}, paths[1:], func(from *fabric.Namespace, to path) error {
		first, err := from.Ask(to.network, to.addr, fabric.Patience)
		if err != nil {
			return err
		}
		return answeredBy(first.Pod)(from, to)
	})
}

// fill adds elements to the affinity map whose name contains a part, until it is full.
func fill(t *testing.T, n *node, family, part string, endpoint netip.Addr) {
	t.Helper()
	listing := runNFT(t, n, "", "-t", "list", "table", family, "vicinity")
	names := regexp.MustCompile(`map (affinity\S*`+regexp.QuoteMeta(part)+`\S*) {`).FindAllStringSubmatch(listing, -1)
	if len(names) != 1 {
		t.Fatalf("there are %d affinity maps of %s, want one:\n%s", len(names), part, listing)
	}
	var elements strings.Builder
	fmt.Fprintf(&elements, "flush map %s vicinity %s\nadd element %s vicinity %s {\n", family, names[0][1], family, names[0][1])
	for i := range full {
		fmt.Fprintf(&elements, "\t100.64.%d.%d timeout 1h : %s,\n", i>>8, i&0xff, endpoint)
	}
	elements.WriteString("}\n")
	runNFT(t, n, elements.String(), "-f", "-")
}
