package packets_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// maxAffinityClients is the kernel's limit for the clients in a map without a size of its own.
const maxAffinityClients = 65535

// TestManyClientsDisturbNoOtherService checks a Service with as many clients in its affinity map as the kernel allows:
// it still balances new clients, but without affinity. The affinity of another Service is not affected.
func TestManyClientsDisturbNoOtherService(t *testing.T) {
	t.Parallel()
	c := setUp(t, setup{nodes: 1, config: clusterCIDR(), notOwned: true})
	node := c.nodes[0]
	servers := []*pod{c.addServer(node, "a"), c.addServer(node, "b")}
	client := c.addPod(node, "client").Namespace
	other := app{"other", 11}
	c.apply(other.service(affinity(affinityHour)).Merge(other.endpoints(servers...)))
	otherPaths := other.paths(node, model.ClusterIP)
	serverOf := map[path]string{}
	for _, to := range otherPaths {
		serverOf[to] = expectOneServer(t, client, to, 8)
	}
	for number, to := range []path{paths[0], paths[4]} { // TCP over IPv4, UDP over IPv6
		crowded := app{fmt.Sprintf("crowded-%d", number), byte(51 + number)}
		c.apply(crowded.service(crowded.withEverything, affinity(affinityHour)).Merge(crowded.endpoints(servers...)))
		fillAffinityMap(t, node, crowded, to, servers[0])
		expectNoAffinity(t, client, crowded, to)
		for _, to := range otherPaths {
			if got := expectOneServer(t, client, to, 8); got != serverOf[to] {
				t.Errorf("%s of the other Service: the client has endpoint %s, want %s as before", to, got, serverOf[to])
			}
		}
		newClient := c.addPod(node, fmt.Sprintf("stranger-%d", number)).Namespace
		for _, to := range otherPaths {
			expectOneServer(t, newClient, to, localConnections)
		}
	}
}

// expectNoAffinity checks that one port of a Service, in one family, balances a client's connections without affinity,
// and that all its other ports keep affinity.
func expectNoAffinity(t *testing.T, client *fabric.Namespace, crowded app, full path) {
	t.Helper()
	for _, to := range pathsTo(servicePort, crowded.addrs(model.ClusterIP)...) {
		if to.network != full.network || to.family() != full.family() {
			expectOneServer(t, client, to, localConnections)
			continue
		}
		seen := map[string]bool{}
		for range maxConnections {
			seen[mustRequest(t, client, to).Pod] = true
		}
		if len(seen) != 2 {
			t.Errorf("%s: only %v reply to a client without affinity", to, seen)
		}
	}
}

// fillAffinityMap fills the affinity map of one port of a Service in one family.
func fillAffinityMap(t *testing.T, n *node, crowded app, to path, endpoint *pod) {
	t.Helper()
	table, clientOf := "ip", "100.64.%d.%d"
	if to.family() == model.IPv6 {
		table, clientOf = "ip6", "fd00:64::%x:%x"
	}
	frontend := fmt.Sprintf("%s . %s . %d", crowded.addr(model.ClusterIP, to.family()), to.network, servicePort)
	class := elementValue(t, n, table, "services", frontend)
	port := elementValue(t, n, table, "sticky-ports", frontend)
	if class>>24 != 0xf7 || port>>24 != 0xf0 {
		t.Fatalf("%s has class %x and number %x, which are not for affinity", frontend, class, port)
	}
	clients := fmt.Sprintf("affinity-%d", class>>1&0x1f)
	number := endpointNumber(t, n, table, port, fmt.Sprintf("%s . %d", to.clientAddr(endpoint.Namespace), podPort))
	var elements strings.Builder
	fmt.Fprintf(&elements, "flush map %s vicinity %s\nadd element %s vicinity %s {\n", table, clients, table, clients)
	for i := range maxAffinityClients {
		fmt.Fprintf(&elements, "\t%s . "+clientOf+" timeout 1h : %s,\n", classid(port), i>>8, i&0xff, classid(number))
	}
	elements.WriteString("}\n")
	runNFT(t, n, elements.String(), "-f", "-")
}

// elementPattern matches the value of a map element: a number, in nft's notation for packet priorities.
var elementPattern = regexp.MustCompile(` : ([0-9a-f]+):([0-9a-f]+)`)

// elementValue returns the value of a key in a map.
func elementValue(t *testing.T, n *node, table, name, key string) uint32 {
	t.Helper()
	listing := runNFT(t, n, "", "get", "element", table, "vicinity", name, "{ "+key+" }")
	found := elementPattern.FindAllStringSubmatch(listing, -1)
	if len(found) != 1 {
		t.Fatalf("map %s has %d values for %s, want one:\n%s", name, len(found), key, listing)
	}
	return parseClassID(t, found[0])
}

// endpointNumber returns the number by which the maps refer to an endpoint of a port.
func endpointNumber(t *testing.T, n *node, table string, port uint32, endpoint string) uint32 {
	t.Helper()
	listing := runNFT(t, n, "", "list", "map", table, "vicinity", "numbered") +
		runNFT(t, n, "", "list", "map", table, "vicinity", "numbered-collided")
	numbered := regexp.MustCompile(` \. ([0-9a-f]+):([0-9a-f]+) : ` + regexp.QuoteMeta(endpoint) + `\b`)
	for _, found := range numbered.FindAllStringSubmatch(listing, -1) {
		if number := parseClassID(t, found); number&^0x020000ff == port {
			return number
		}
	}
	t.Fatalf("no number of the port %x leads to %s:\n%s", port, endpoint, listing)
	return 0
}

func parseClassID(t *testing.T, halves []string) uint32 {
	t.Helper()
	high, err := strconv.ParseUint(halves[1], 16, 16)
	must.Succeed(t, err)
	low, err := strconv.ParseUint(halves[2], 16, 16)
	must.Succeed(t, err)
	return uint32(high<<16 | low)
}

func classid(number uint32) string { return fmt.Sprintf("%x:%x", number>>16, number&0xffff) }
