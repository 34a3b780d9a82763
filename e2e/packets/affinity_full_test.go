package packets_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// full is how many clients the kernel lets a map remember that has no size of its own.
const full = 65535

// TestACrowdOfClientsDisturbsNoOtherService: when as many clients are remembered as the kernel allows, the Service goes on
// to balance new ones, only without affinity; and another Service remembers its clients as before.
func TestACrowdOfClientsDisturbsNoOtherService(t *testing.T) {
	t.Parallel()
	c := setUp(t, setup{nodes: 1, config: clusterCIDR(), notOwned: true})
	node := c.nodes[0]
	servers := []*pod{c.addServer(node, "a"), c.addServer(node, "b")}
	client := c.addPod(node, "client").Namespace
	other := app{"other", 11}
	c.apply(other.service(affinity(anHour)).Then(other.endpoints(servers...)))
	others := other.paths(node, model.ClusterIP)
	own := map[path]string{}
	for _, to := range others {
		own[to] = sticks(t, client, to, 8)
	}
	for number, to := range []path{paths[0], paths[4]} { // TCP over IPv4, UDP over IPv6
		crowded := app{fmt.Sprintf("crowded-%d", number), byte(51 + number)}
		c.apply(crowded.service(crowded.withEverything, affinity(anHour)).Then(crowded.endpoints(servers...)))
		fill(t, node, crowded, to, servers[0])
		expectForgets(t, client, crowded, to)
		for _, to := range others {
			if got := sticks(t, client, to, 8); got != own[to] {
				t.Errorf("%s of the other Service: the client is with %s now, and was with %s", to, got, own[to])
			}
		}
		stranger := c.addPod(node, fmt.Sprintf("stranger-%d", number)).Namespace
		for _, to := range others {
			sticks(t, stranger, to, localConnections)
		}
	}
}

// expectForgets expects that one port of a Service, in one family, balances a client's connections as if there were no
// affinity, and that all its other ports remember the client.
func expectForgets(t *testing.T, client *fabric.Namespace, crowded app, full path) {
	t.Helper()
	for _, to := range pathsTo(servicePort, crowded.addrs(model.ClusterIP)...) {
		if to.network != full.network || to.family() != full.family() {
			sticks(t, client, to, localConnections)
			continue
		}
		seen := map[string]bool{}
		for range mostConnections {
			seen[mustAsk(t, client, to).Pod] = true
		}
		if len(seen) != 2 {
			t.Errorf("%s: only %v answer a client that could not be remembered", to, seen)
		}
	}
}

// fill fills the map in which a Service remembers the clients of one port in one family. There are fewer ports than maps,
// so that no other has it.
func fill(t *testing.T, n *node, crowded app, to path, endpoint *pod) {
	t.Helper()
	table, clientOf := "ip", "100.64.%d.%d"
	if to.family() == model.IPv6 {
		table, clientOf = "ip6", "fd00:64::%x:%x"
	}
	numbers := func(set, key, value string) []uint32 {
		listing := runNFT(t, n, "", "list", "map", table, "vicinity", set)
		var all []uint32
		for _, found := range regexp.MustCompile(key+`(f[0-9a-f]{3}):([0-9a-f]+)`+value).FindAllStringSubmatch(listing, -1) {
			major, errMajor := strconv.ParseUint(found[1], 16, 16)
			minor, errMinor := strconv.ParseUint(found[2], 16, 16)
			if err := errors.Join(errMajor, errMinor); err != nil {
				t.Fatal(err)
			}
			all = append(all, uint32(major<<16|minor))
		}
		return all
	}
	addr := regexp.QuoteMeta(crowded.addr(model.ClusterIP, to.family()).String())
	server := regexp.QuoteMeta(to.own(endpoint.Namespace).String())
	ports := numbers("sticky-ports", addr+` \. `+to.network+` \. \d+ : `, "")
	ends := slices.DeleteFunc(numbers("numbered", to.network+` \. `, " : "+server+` \. `), func(number uint32) bool {
		return number&^0x020000ff != ports[0]
	})
	if len(ports) != 1 || len(ends) != 1 {
		t.Fatalf("the port has the numbers %x and its endpoint %x, want one each", ports, ends)
	}
	port, of := ports[0], ends[0]
	name := fmt.Sprintf("affinity-%d", port>>8&15)
	var elements strings.Builder
	fmt.Fprintf(&elements, "flush map %s vicinity %s\nadd element %s vicinity %s {\n", table, name, table, name)
	for i := range full {
		fmt.Fprintf(&elements, "\t%x:%x . "+clientOf+" timeout 1h : %x:%x,\n", port>>16, port&0xffff, i>>8, i&0xff, of>>16, of&0xffff)
	}
	elements.WriteString("}\n")
	runNFT(t, n, elements.String(), "-f", "-")
}
