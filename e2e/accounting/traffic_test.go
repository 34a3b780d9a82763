package accounting_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// request sends the given number of requests to each frontend of a Service over each protocol, and returns the number
// of responses by pod.
func (s *setup) request(from *fabric.Namespace, svc *service, times int) map[string]uint64 {
	s.t.Helper()
	responses := map[string]uint64{}
	for range times {
		for _, network := range []string{"tcp", "udp", "sctp"} {
			for _, to := range []netip.AddrPort{
				svc.clusterIP(model.IPv4), svc.clusterIP(model.IPv6),
				netip.AddrPortFrom(s.local.IPv4, svc.nodePort()), netip.AddrPortFrom(s.local.IPv6, svc.nodePort()),
			} {
				reply, err := from.Request(network, to, fabric.Timeout)
				must.Succeed(s.t, err)
				responses[reply.Pod]++
			}
		}
	}
	return responses
}

// dial opens a connection that carries only transfers.
func (s *setup) dial(to *service, family model.Family) net.Conn {
	s.t.Helper()
	conn, err := s.client.Dial("tcp", to.clusterIP(family).String(), fabric.Timeout)
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	must.Succeed(s.t, fabric.Blackhole(conn))
	return conn
}

// addReferenceCounters makes a client's kernel count the bytes to and from each Service by separate rules.
func (s *setup) addReferenceCounters(client *fabric.Namespace) {
	s.t.Helper()
	var rules strings.Builder
	rules.WriteString("table inet reference {\n")
	for _, svc := range s.services {
		fmt.Fprintf(&rules, "counter sent_%d { }\ncounter received_%[1]d { }\n", svc.number)
	}
	for _, side := range []struct{ hook, counter, addr, port string }{
		{"output", "sent", "daddr", "dport"}, {"input", "received", "saddr", "sport"},
	} {
		fmt.Fprintf(&rules, "chain %s { type filter hook %[1]s priority 0;\n", side.hook)
		for _, svc := range s.services {
			for _, match := range []string{
				"ip " + side.addr + " " + svc.ipv4().String(), "ip6 " + side.addr + " " + svc.ipv6().String(),
				fmt.Sprintf("meta l4proto { tcp, udp, sctp } th %s %d", side.port, svc.nodePort()),
			} {
				fmt.Fprintf(&rules, "%s counter name %s_%d\n", match, side.counter, svc.number)
			}
		}
		rules.WriteString("}\n")
	}
	rules.WriteString("}\n")
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(rules.String())
	_, err := client.Run(command)
	must.Succeed(s.t, err)
}

var counterPattern = regexp.MustCompile(`counter (sent|received)_(\d+) \{\s+packets \d+ bytes (\d+)`)

// referenceBytes returns the bytes that a client's kernel has counted, by direction and Service.
func (s *setup) referenceBytes(client *fabric.Namespace) map[string]uint64 {
	s.t.Helper()
	text, err := client.Run(exec.Command("nft", "list", "counters", "table", "inet", "reference"))
	must.Succeed(s.t, err)
	bytes := map[string]uint64{}
	for _, found := range counterPattern.FindAllStringSubmatch(text, -1) {
		number, err := strconv.Atoi(found[2])
		must.Succeed(s.t, err)
		bytes[found[1]+" "+s.services[number-1].name], err = strconv.ParseUint(found[3], 10, 64)
		must.Succeed(s.t, err)
	}
	return bytes
}
