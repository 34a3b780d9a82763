//go:build linux

package nft

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/competing"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// kubeProxyNFTables is the part of kube-proxy's rules in nftables mode that determines which proxy translates: see
// setupNFTables in its pkg/proxy/nftables/proxier.go. Each start recreates the base chains.
const kubeProxyNFTables = `
add table ip kube-proxy { comment "rules for kube-proxy"; }
add chain ip kube-proxy nat-prerouting
delete chain ip kube-proxy nat-prerouting
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority dstnat; }
add chain ip kube-proxy nat-output { type nat hook output priority -100; }
add chain ip kube-proxy services
add rule ip kube-proxy nat-prerouting jump services
add rule ip kube-proxy nat-output jump services
add rule ip kube-proxy services ip daddr 10.96.0.1 tcp dport 443 dnat to 172.18.0.3:6443
`

// The tables of iptables-nft, with what each program has in them.
const (
	iptablesBase = `
add table ip nat
add chain ip nat PREROUTING { type nat hook prerouting priority dstnat; }
add chain ip nat OUTPUT { type nat hook output priority -100; }
add chain ip nat POSTROUTING { type nat hook postrouting priority srcnat; }
`
	kubeProxyIPTables = iptablesBase + `
add chain ip nat KUBE-SERVICES
add chain ip nat KUBE-NODEPORTS
add rule ip nat PREROUTING counter jump KUBE-SERVICES
add rule ip nat OUTPUT counter jump KUBE-SERVICES
add rule ip nat KUBE-SERVICES fib daddr type local counter jump KUBE-NODEPORTS
`
	// kubeProxyIPVS translates nothing in nf_tables.
	kubeProxyIPVS = iptablesBase + `
add chain ip nat KUBE-SERVICES
add chain ip nat KUBE-NODE-PORT
add chain ip nat KUBE-LOAD-BALANCER
add rule ip nat PREROUTING counter jump KUBE-SERVICES
add rule ip nat KUBE-SERVICES fib daddr type local counter jump KUBE-NODE-PORT
`
	kubelet = iptablesBase + `
add chain ip nat KUBE-MARK-DROP
add chain ip nat KUBE-MARK-MASQ
add chain ip nat KUBE-POSTROUTING
add chain ip nat KUBE-KUBELET-CANARY
add chain ip nat KUBE-IPTABLES-HINT
add rule ip nat POSTROUTING counter jump KUBE-POSTROUTING
add rule ip nat KUBE-POSTROUTING mark and 0x4000 == 0x4000 counter masquerade
`
	portmapIPTables = iptablesBase + `
add chain ip nat CNI-HOSTPORT-DNAT
add rule ip nat PREROUTING fib daddr type local counter jump CNI-HOSTPORT-DNAT
add rule ip nat CNI-HOSTPORT-DNAT tcp dport 30080 counter dnat to 10.244.0.9:80
`
	portmapNFTables = `
add table ip cni_hostport
add chain ip cni_hostport prerouting { type nat hook prerouting priority dstnat; }
add chain ip cni_hostport hostports
add rule ip cni_hostport prerouting fib daddr type local jump hostports
add rule ip cni_hostport hostports tcp dport 30080 dnat to 10.244.0.9:80
`
	docker = iptablesBase + `
add chain ip nat DOCKER
add rule ip nat PREROUTING fib daddr type local counter jump DOCKER
add rule ip nat DOCKER tcp dport 8080 counter dnat to 172.17.0.2:80
`
	kubeRouter = iptablesBase + `
add chain ip nat KUBE-ROUTER-SERVICES
add rule ip nat PREROUTING counter jump KUBE-ROUTER-SERVICES
`
	// portForwarding forwards a port, in a chain that precedes ours.
	portForwarding = `
add table ip forwarding
add chain ip forwarding nat-prerouting { type nat hook prerouting priority dstnat - 1; }
add rule ip forwarding nat-prerouting tcp dport 8443 dnat to 10.244.0.9:443
`
	// calicoPin keeps Calico in nftables mode after kube-proxy was removed.
	calicoPin = `
add table ip kube-proxy
add chain ip kube-proxy pin
`
)

// loadAs writes nft's commands to the kernel, for a family.
func loadAs(namespace *netns.Namespace, family model.Family, text string) {
	if family == model.IPv6 {
		text = strings.NewReplacer(
			"table ip ", "table ip6 ", "chain ip ", "chain ip6 ", "rule ip ", "rule ip6 ", "ip daddr", "ip6 daddr",
			"10.96.0.1 ", "fd00:10:96::1 ", "172.18.0.3:", "[fd00:172:18::3]:", "10.244.0.9:", "[fd00:10:244::9]:",
			"172.17.0.2:", "[fd00:172:17::2]:",
		).Replace(text)
	}
	namespace.Load(text)
}

// foundProxies returns which other proxies are found, and whether they are known to precede ours.
func foundProxies(t *testing.T, c *Conn) map[string]bool {
	t.Helper()
	findings, err := c.OtherProxies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	precedes := map[string]bool{}
	for _, finding := range findings {
		precedes[finding.Proxy] = finding.Precedes
	}
	return precedes
}

func TestOtherProxiesAreDistinguishedFromOtherPrograms(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		proxy string // empty if it is no service proxy
	}{
		"kube-proxy in nftables mode":    {kubeProxyNFTables, "kube-proxy-nftables"},
		"kube-proxy in iptables mode":    {kubeProxyIPTables, "kube-proxy-iptables"},
		"kube-proxy and its neighbours":  {kubelet + docker + portmapIPTables + kubeProxyIPTables, "kube-proxy-iptables"},
		"kube-proxy in IPVS mode":        {kubeProxyIPVS, ""},
		"kube-proxy's chains, flushed":   {kubeProxyIPTables + "flush table ip nat\n", ""},
		"kubelet":                        {kubelet, ""},
		"portmap with iptables":          {portmapIPTables, ""},
		"portmap with nftables":          {portmapNFTables, ""},
		"docker":                         {docker, ""},
		"kube-router":                    {kubeRouter, ""},
		"an administrator's forwarding":  {portForwarding, ""},
		"Calico's pin for nftables mode": {calicoPin, ""},
		"none":                           {"", ""},
	} {
		for _, family := range model.Families {
			t.Run(fmt.Sprint(name, " ", family), func(t *testing.T) {
				namespace := netns.New(t)
				c := dial(t, namespace, Options{})
				want := func(first bool) map[string]bool {
					if test.proxy == "" {
						return map[string]bool{}
					}
					return map[string]bool{test.proxy: first}
				}
				check := func(when string, want map[string]bool) {
					t.Helper()
					if diff := cmp.Diff(want, foundProxies(t, c)); diff != "" {
						t.Errorf("%s (-want +got):\n%s", when, diff)
					}
				}
				loadAs(namespace, family, test.text)
				check("before our tables exist", want(false))
				commit(t, c, everything(model.IPv4))
				commit(t, c, everything(model.IPv6))
				check("our tables are newer", want(false))
				for listed := range strings.SplitSeq(strings.TrimSpace(namespace.NFT("list", "tables")), "\n") {
					if listed != "" && !strings.HasSuffix(listed, " vicinity") {
						namespace.NFT(append([]string{"delete"}, strings.Fields(listed)...)...)
					}
				}
				check("after its removal", map[string]bool{})
				loadAs(namespace, family, test.text)
				check("after its return", want(true))
			})
		}
	}
}

// Packets show which program translates: the one whose chains were added later. If those are in the older table, the
// result does not report which program is first.
func TestWhichProgramComesFirst(t *testing.T) {
	const kubeProxyTable, vicinityTable = "kube-proxy", "vicinity"
	for name, test := range map[string]struct {
		owners []string // owners of the tables, in order of creation; the second time only the chain is recreated
		first  string   // the program that translates
		known  bool
	}{
		"Vicinity's table is newer":                          {[]string{kubeProxyTable, vicinityTable}, vicinityTable, false},
		"kube-proxy's table is newer":                        {[]string{vicinityTable, kubeProxyTable}, kubeProxyTable, true},
		"kube-proxy's chain is recreated in its older table": {[]string{kubeProxyTable, vicinityTable, kubeProxyTable}, kubeProxyTable, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, model.IPv4)
			listen(t, n.server, n.serverAddr)
			c := dial(t, n.router, Options{})
			for _, table := range test.owners {
				n.router.Load(strings.ReplaceAll(`
add table ip TABLE
add chain ip TABLE nat-prerouting
flush chain ip TABLE nat-prerouting
delete chain ip TABLE nat-prerouting
add chain ip TABLE nat-prerouting { type nat hook prerouting priority dstnat; }
add rule ip TABLE nat-prerouting counter dnat to `+n.serverAddr.String()+"\n", "TABLE", table))
			}
			connectFrom(t, n.client, n.clientAddr, n.serverAddr)
			for _, table := range []string{kubeProxyTable, vicinityTable} {
				isUsed := !strings.Contains(n.router.NFT("list", "chain", "ip", table, "nat-prerouting"), "packets 0 ")
				if isUsed != (table == test.first) {
					t.Errorf("the chain of %s has seen the connection: %v", table, isUsed)
				}
			}
			if diff := cmp.Diff(map[string]bool{"kube-proxy-nftables": test.known}, foundProxies(t, c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// BenchmarkOtherProxies detects other proxies in an empty kernel, and in one where kube-proxy has chains for 10,000
// Services.
func BenchmarkOtherProxies(b *testing.B) {
	for _, services := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("with %d Services", services), func(b *testing.B) {
			namespace := netns.New(b)
			if services > 0 {
				var text strings.Builder
				text.WriteString(kubeProxyNFTables + kubeProxyIPTables)
				for i := range services {
					for _, table := range []string{"kube-proxy", "nat"} {
						for _, kind := range []string{"service", "endpoint-1", "endpoint-2"} {
							fmt.Fprintf(&text, "add chain ip %s %s-%d-ABCDEFGH/namespace-%d/service-%d/tcp/web\n", table, kind, i, i, i)
						}
					}
				}
				namespace.Load(text.String())
			}
			var reader *Reader
			var err error
			namespace.Do(func() { reader, err = OpenReader() })
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = reader.Close() }()
			var findings []competing.Conflict
			for b.Loop() {
				if findings, err = reader.OtherProxies(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			if want := min(services, len(competing.Programs)); len(findings) != want {
				b.Errorf("%d other proxies are found, want %d", len(findings), want)
			}
			b.ReportMetric(float64(reader.sequence)/float64(b.N), "queries/op")
		})
	}
}
