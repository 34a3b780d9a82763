// Package competing recognizes other service proxies by their tables in the kernel's nf_tables, and determines which
// chains come first. To recognize another service proxy, add it to Programs; package daemon (other_proxies.go) decides
// when to check and what to report.
//
// Two NAT chains of one priority may see a connection, and the first one that translates it decides. The kernel runs
// the chain first that was registered last. So a service proxy that starts later decides where connections go, and the
// rules that a stopped one left behind may do so too.
//
// Not recognized are:
//
//   - IPVS, which kube-proxy and kube-router can use. It always runs after our chains: at the hook LOCAL_IN, and at
//     LOCAL_OUT after priority -100 (ip_vs_core.c).
//   - Programs that translate in eBPF or Open vSwitch, such as Cilium, Calico's eBPF and OVN-Kubernetes.
//   - Legacy iptables. The kernel reports its chains only together with all of their rules.
package competing

import (
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Program is a service proxy, and how to recognize it.
type Program struct {
	// Name is for messages, ID for metrics.
	Name, ID string
	// Table is the name of its table, in each family, and Base that of its NAT chain at prerouting.
	Table, BaseChain string
	// SignatureChain is a chain that no other program has. It may be Base.
	SignatureChain string
	// Remedy is what an administrator should do.
	Remedy string
}

const removeKubeProxy = "stop kube-proxy (kubectl -n kube-system delete daemonset kube-proxy, or whatever else starts it)" +
	", then remove its rules on this node (kube-proxy --cleanup)"

// Programs are the service proxies that are recognized.
//
// In the table nat, which many programs share, the signature is not KUBE-SERVICES: in IPVS mode kube-proxy has that
// chain too, and it translates nothing. Only kube-proxy creates KUBE-NODEPORTS there (pkg/proxy/iptables/proxier.go,
// 1.30 to 1.37); KUBE-MARK-…, KUBE-POSTROUTING, KUBE-KUBELET-CANARY and KUBE-IPTABLES-HINT are kubelet's.
var Programs = []Program{
	{
		Name: "kube-proxy in nftables mode", ID: "kube-proxy-nftables",
		Table: "kube-proxy", BaseChain: "nat-prerouting", SignatureChain: "nat-prerouting", Remedy: removeKubeProxy,
	},
	{
		Name: "kube-proxy in iptables mode", ID: "kube-proxy-iptables",
		Table: "nat", BaseChain: "PREROUTING", SignatureChain: "KUBE-NODEPORTS", Remedy: removeKubeProxy,
	},
}

// IDs returns the IDs of all Programs.
func IDs() []string {
	ids := make([]string, len(Programs))
	for i := range Programs {
		ids[i] = Programs[i].ID
	}
	return ids
}

// Chain is the state of a chain in the kernel; zero if there is none.
type Chain struct {
	// Translates is set for a base chain of type nat at prerouting, with this priority.
	Translates bool
	Priority   int32
	// Uses counts its rules, and the rules that jump to it.
	Uses uint32
}

// Observed is the state of a Program's table and chains in one family; zero if it has none.
type Observed struct {
	// Handle is the table's handle. The kernel numbers tables in ascending order: a newer table has a larger handle.
	Handle          uint64
	Base, Signature Chain
}

// Tables is the state of one family. OwnHandle is the handle of our own table, zero if there is none: our NAT chains
// are created with it and stay as long as it does. Observed has the state of each of the Programs, in their order.
type Tables struct {
	OwnHandle uint64
	Observed  []Observed
}

// Conflict is another service proxy that translates connections on this node.
//
// Its JSON names are an API: `proxy status` prints them.
type Conflict struct {
	Proxy  string   `json:"proxy"`  // Program.ID
	Tables []string `json:"tables"` // as nft names them, such as "ip kube-proxy"
	// Precedes is set if the program's chains are known to precede ours in some family. If not they still may: if the
	// program's table is the older one, it is unknown which base chain is newer, because kube-proxy recreates its own at
	// each start.
	Precedes bool   `json:"first"`
	Message  string `json:"says"` // one sentence, for display
	Remedy   string `json:"do"`   // what to do about it
}

// Find returns the other service proxies, in the order of Programs; never nil.
func Find(tables map[model.Family]Tables) []Conflict {
	conflicts := []Conflict{}
	for i := range Programs {
		program := &Programs[i]
		conflict := Conflict{Proxy: program.ID, Remedy: program.Remedy}
		for _, family := range model.Families {
			familyTables, found := tables[family]
			if !found || !familyTables.Observed[i].translates() {
				continue
			}
			conflict.Tables = append(conflict.Tables, ruleset.Keyword(family)+" "+program.Table)
			conflict.Precedes = conflict.Precedes || familyTables.precedesUs(i)
		}
		if conflict.Tables == nil {
			continue
		}
		conflict.Message = conflictMessage(program.Name, &conflict)
		conflicts = append(conflicts, conflict)
	}
	return conflicts
}

// translates reports whether connections may pass the program's rules before ours. A chain after ours gets only
// connections that we do not serve, and flushed chains translate nothing.
func (o *Observed) translates() bool {
	return o.Base.Translates && o.Base.Priority <= ruleset.PriorityDNAT && o.Signature.Uses > 0
}

// precedesUs reports whether a program that translates is known to precede us.
func (t *Tables) precedesUs(index int) bool {
	observed := &t.Observed[index]
	return t.OwnHandle != 0 && (observed.Base.Priority < ruleset.PriorityDNAT || observed.Handle > t.OwnHandle)
}

func conflictMessage(name string, conflict *Conflict) string {
	tables := strings.Join(conflict.Tables, ", ")
	if conflict.Precedes {
		return fmt.Sprintf("%s handles new connections before this proxy: its rules (%s) come first", name, tables)
	}
	return fmt.Sprintf("%s also has rules on this node (%s): they handle what this proxy does not serve, and take "+
		"precedence if they are newer", name, tables)
}
