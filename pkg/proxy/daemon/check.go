package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/sysctl"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// ipvsLink is the interface that has the addresses of all Services in kube-proxy's IPVS mode.
const ipvsLink = "kube-ipvs0"

// legacyChains are chains of kube-proxy's iptables and IPVS modes that kubelet does not create
// (pkg/proxy/iptables/proxier.go and pkg/proxy/ipvs/proxier.go; pkg/kubelet/kubelet_network_linux.go).
var legacyChains = []struct{ table, name string }{{"nat", "KUBE-SERVICES"}, {"filter", "KUBE-FORWARD"}}

// CheckResult is the result of Check.
type CheckResult struct {
	Results []config.SettingResult
	// Families are those whose tables the kernel supports; both if that is unknown.
	Families []model.Family
	// Addresses are those of all interfaces, without those that only IPVS mode added.
	Addresses []netip.Addr
}

// Check examines the node as Run does when it starts, and looks for leftovers of kube-proxy's older modes. It changes
// nothing: to learn whether tables can be created, it sends the kernel a batch that the kernel discards.
func Check(ctx context.Context, settings *config.Settings, ownTables bool) CheckResult {
	checked := CheckResult{Families: model.Families}
	checked.tables(ctx, ownTables)
	checked.conntrack(settings)
	checked.links(ctx)
	checked.legacyTables("/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names")
	return checked
}

func (c *CheckResult) add(subject, value string, outcome config.Outcome, effect, remedy string) {
	c.Results = append(c.Results, config.SettingResult{Subject: subject, Value: value, Outcome: outcome, Effect: effect, Do: remedy})
}

// tables makes the nf_tables requests that Run makes first, and looks for rules of other programs.
func (c *CheckResult) tables(ctx context.Context, ownTables bool) {
	conn, err := nft.Dial(nft.Options{Owned: ownTables})
	if err != nil {
		c.add("nf_tables", "", config.Rejected, err.Error(), "")
		return
	}
	defer func() { _ = conn.Close() }()
	c.Families = conn.Families()
	owned := "other programs can change our tables, which the proxy then repairs"
	if conn.Owned() {
		owned = "no other program can change our tables"
	}
	var families []string
	for _, family := range c.Families {
		families = append(families, family.String())
	}
	c.add("nf_tables", strings.Join(families, ", "), config.Same, "all required features are available; "+owned, "")
	others, err := conn.OtherProxies(ctx)
	if err != nil {
		c.add("other service proxies", "", config.Unknown, err.Error(), "")
	}
	for _, other := range others {
		c.add(other.Proxy, strings.Join(other.Tables, ", "), config.Leftover, other.Message, other.Remedy)
	}
	c.chains(ctx, conn)
}

// chains looks for chains that affect no connections, and which OtherProxies therefore does not report.
func (c *CheckResult) chains(ctx context.Context, conn *nft.Conn) {
	var found []string
	for _, family := range c.Families {
		for _, chain := range legacyChains {
			has, err := conn.HasChain(ctx, family, chain.table, chain.name)
			if err != nil {
				c.add("kube-proxy's chains", "", config.Unknown, err.Error(), "")
				return
			}
			if has {
				found = append(found, ruleset.Keyword(family)+" "+chain.table+" "+chain.name)
			}
		}
	}
	if len(found) > 0 {
		c.add("kube-proxy's chains", strings.Join(found, ", "), config.Leftover,
			"packets still traverse the chains of kube-proxy's iptables or IPVS mode, which this proxy does not need", cleanUpAdvice)
	}
}

const cleanUpAdvice = "once this proxy runs, remove them (kube-proxy --cleanup)"

// conntrack compares the kernel's settings with the desired ones. They exist once conntrack has been opened.
func (c *CheckResult) conntrack(settings *config.Settings) {
	table, err := conntrack.Dial()
	if err != nil {
		c.add("connection tracking", "", config.Rejected, err.Error(), "")
		return
	}
	_ = table.Close()
	for _, result := range sysctl.Check(sysctl.Root, settings.Conntrack.Settings(runtime.NumCPU())...) {
		c.sysctl(result, fmt.Sprintf("is set to %d if the proxy may write it", result.Desired.Value), result.Desired.Advice())
	}
	forwarding := map[model.Family]sysctl.DesiredValue{model.IPv4: sysctl.ForwardingIPv4, model.IPv6: sysctl.ForwardingIPv6}
	for _, family := range c.Families {
		for _, result := range sysctl.Check(sysctl.Root, forwarding[family]) {
			c.sysctl(result, "connections to Services do not reach pods on other nodes", result.Desired.Advice())
		}
	}
	for _, result := range sysctl.Check(sysctl.Root, sysctl.LeftoverSettings...) {
		if result.Outcome == sysctl.Unmet {
			c.add(result.Desired.Name, fmt.Sprint(result.Previous), config.Leftover,
				"kube-proxy's iptables or IPVS mode may have set it; this proxy does not need it", "unless another program needs it, "+
					result.Desired.Advice())
		}
	}
}

// sysctl reports a setting that differs from the desired value. One that the kernel lacks does not matter on this node.
func (c *CheckResult) sysctl(result sysctl.Result, effect, remedy string) {
	switch {
	case result.Err != nil:
		c.add(result.Desired.Name, "", config.Unknown, result.Err.Error(), "")
	case result.Outcome == sysctl.Unmet:
		c.add(result.Desired.Name, fmt.Sprint(result.Previous), config.Differs, effect, remedy)
	}
}

// links reads the addresses, and looks for the interface of IPVS mode.
func (c *CheckResult) links(ctx context.Context) {
	addrs, err := interfaces.Addrs(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		c.add("addresses", "", config.Unknown, err.Error(), "")
	}
	serviceAddrs, err := interfaces.AddrsOfLink(ipvsLink)
	serviceAddrs = slices.DeleteFunc(serviceAddrs, netip.Addr.IsLinkLocalUnicast)
	if err != nil {
		c.add(ipvsLink, "", config.Unknown, err.Error(), "")
	}
	if serviceAddrs != nil {
		c.add(ipvsLink, fmt.Sprintf("addresses: %d", len(serviceAddrs)), config.Leftover,
			"the node treats Service addresses as its own: it replies to pings, and programs that listen on all addresses also accept there",
			"once this proxy runs: kube-proxy --cleanup, or ip link delete "+ipvsLink)
	}
	c.Addresses = slices.DeleteFunc(addrs, func(addr netip.Addr) bool { return slices.Contains(serviceAddrs, addr) })
}

// legacyTables looks for tables of legacy iptables, which nf_tables does not list.
func (c *CheckResult) legacyTables(paths ...string) {
	var found []string
	for _, path := range paths {
		names, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.add("legacy iptables", "", config.Unknown, err.Error(), "")
		}
		found = append(found, strings.Fields(string(names))...)
	}
	if len(found) > 0 {
		slices.Sort(found)
		c.add("legacy iptables", strings.Join(slices.Compact(found), ", "), config.Leftover,
			"it has tables, which may contain kube-proxy's chains", "iptables-legacy-save | grep KUBE-")
	}
}
