package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// differences are the settings of kube-proxy, set or by default, that have another effect here. A function returns the
// effect and what to do about it; both are empty if the effect is the same.
// ../../../manifests/from-iptables-and-ipvs.md explains each.
var differences = map[string]func(*Configuration) (here, do string){
	"mode": func(c *Configuration) (string, string) {
		if c.Mode == modeNFTables {
			return "", ""
		}
		here := "nftables is programmed, in the tables ip vicinity and ip6 vicinity"
		if c.Mode == "" {
			here = "kube-proxy's default is iptables; here " + here
		}
		return here, "once this proxy runs, remove what " + modeOf(c) + " mode left behind (kube-proxy --cleanup)"
	},
	"nodePortAddresses": func(c *Configuration) (string, string) {
		if c.Mode == modeNFTables || len(c.NodePortAddresses) > 0 {
			return "", ""
		}
		return "primary: node ports are served on the addresses that the Node object names, and not on all",
			`nodePortAddresses: ["0.0.0.0/0", "::/0"] serves them on all, as before`
	},
	"iptables.localhostNodePorts": func(c *Configuration) (string, string) {
		if modeOf(c) != modeIPTables || c.IPTables.LocalhostNodePorts != nil && !*c.IPTables.LocalhostNodePorts {
			return "", ""
		}
		return noLocalhost, "let clients of node ports on 127.0.0.1 dial the node's address instead, or set nodePortAddresses: " +
			"[primary, localhost] and featureGates: {" + localhostNodePorts + ": true}"
	},
	"conntrack.tcpBeLiberal": func(c *Configuration) (string, string) {
		if modeOf(c) != modeIPTables || c.Conntrack.TCPBeLiberal {
			return "", ""
		}
		return "packets that connection tracking finds invalid are not dropped", "with Linux before 6.1 set it to true"
	},
	"ipvs.scheduler": func(c *Configuration) (string, string) {
		if c.Mode != modeIPVS {
			return "", ""
		}
		return "each connection goes to a random endpoint", schedulerAdvice[cmp.Or(c.IPVS.Scheduler, "rr")]
	},
	"ipvs.strictARP": func(c *Configuration) (string, string) {
		if c.Mode != modeIPVS || !c.IPVS.StrictARP {
			return "", ""
		}
		return "not needed: no link has the addresses of Services",
			"net.ipv4.conf.all.arp_ignore and arp_announce keep their values until you reset them"
	},
	"ipvs.tcpTimeout": func(c *Configuration) (string, string) {
		if c.Mode != modeIPVS {
			return "", ""
		}
		here := c.DeepCopy()
		setDefaults(here)
		there, ours := cmp.Or(c.IPVS.TCPTimeout.Duration, ipvsTimeout), here.Conntrack.TCPEstablishedTimeout.Duration.String()
		if ours == "0s" {
			ours = "the kernel's own value"
		}
		return fmt.Sprintf("an idle TCP connection is tracked for conntrack.tcpEstablishedTimeout, %s, instead of %s", ours, there), ""
	},
	"oomScoreAdj": func(c *Configuration) (string, string) {
		if c.OOMScoreAdj != nil {
			return "", ""
		}
		return "the process keeps the value that it was started with; kube-proxy sets -999", ""
	},
}

// ipvsTimeout is the kernel's default (IP_VS_TCP_S_ESTABLISHED in ip_vs_proto_tcp.c).
const ipvsTimeout = 15 * time.Minute

// modeOf returns the mode in which kube-proxy runs. Until 1.40, no mode means iptables.
func modeOf(c *Configuration) string { return cmp.Or(string(c.Mode), modeIPTables) }

const (
	loadBoundAdvice = "open connections are not counted here; the annotation vicinity.dev/max-load bounds the expected load of an endpoint"
	affinityAdvice  = "sessionAffinity: ClientIP keeps a client at its endpoint; each node remembers its own clients"
)

// schedulerAdvice maps schedulers of IPVS to the closest feature here. Over many connections a random choice is as even
// as rr, and kube-proxy gives all endpoints one weight, so that wrr is rr.
var schedulerAdvice = map[string]string{
	"lc": loadBoundAdvice, "wlc": loadBoundAdvice, "lblc": loadBoundAdvice, "lblcr": loadBoundAdvice,
	"sed": loadBoundAdvice, "nq": loadBoundAdvice, "fo": loadBoundAdvice, "ovf": loadBoundAdvice,
	"sh": affinityAdvice, "dh": affinityAdvice, "mh": affinityAdvice,
}

// kubeProxyNodePorts returns where kube-proxy serves node ports: in its older modes on all addresses, unless some are
// named.
func kubeProxyNodePorts(c *Configuration) model.NodePortAddresses {
	var check checker
	if len(c.NodePortAddresses) == 0 {
		return model.NodePortAddresses{Primary: c.Mode == modeNFTables}
	}
	return check.nodePorts(c.NodePortAddresses)
}

// CompareNodePorts compares the node's addresses on which node ports are served before and after. node is nil while the
// Node is unknown.
func CompareNodePorts(before, after model.NodePortAddresses, family model.Family, node *model.Node, present []netip.Addr) SettingResult {
	addrsBefore, addrsAfter := servedOn(before, family, node, present), servedOn(after, family, node, present)
	result := SettingResult{Subject: fmt.Sprintf("node ports, %s", family), Value: addrsText(addrsBefore), Outcome: Same,
		Effect: "served on " + addrsText(addrsAfter)}
	removed := slices.DeleteFunc(slices.Clone(addrsBefore), func(addr netip.Addr) bool { return slices.Contains(addrsAfter, addr) })
	switch {
	case after.Primary && node == nil:
		result.Outcome, result.Effect = Unknown, "served on the addresses that the Node object names; the Node is unknown"
		result.Do = "give --kubeconfig FILE, or --manifests PATH with the Node"
	case len(removed) > 0:
		result.Outcome = Differs
		result.Do = "let clients of " + addrsText(removed) + " dial another address, or add it to nodePortAddresses"
	}
	return result
}

// servedOn returns the addresses that serve node ports, without link-local ones.
func servedOn(nodePorts model.NodePortAddresses, family model.Family, node *model.Node, present []netip.Addr) []netip.Addr {
	if nodePorts.All(family) {
		nodePorts = model.NodePortAddresses{Prefixes: nodePortRanges["all"]}
	}
	served := nodePorts.Choose(family, *cmp.Or(node, &model.Node{}), present)
	return slices.DeleteFunc(served, netip.Addr.IsLinkLocalUnicast)
}

// maxListed is the maximum number of addresses in a sentence.
const maxListed = 8

func addrsText(addrs []netip.Addr) string {
	texts := make([]string, 0, len(addrs))
	for _, addr := range addrs[:min(len(addrs), maxListed)] {
		texts = append(texts, addr.String())
	}
	if more := len(addrs) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(texts, ", "), "no address")
}
