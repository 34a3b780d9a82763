package competing

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// The indexes of the programs in Programs.
const (
	nftables = iota
	iptables
)

const ownHandle = 5 // the handle of our table

// natChain is a NAT base chain that is in use.
var natChain = Chain{Translates: true, Priority: ruleset.PriorityDNAT, Uses: 1}

// tablesWith returns the state of a family in which the kernel has the table of one program.
func tablesWith(handle uint64, program int, observed Observed) Tables {
	tables := Tables{OwnHandle: handle, Observed: make([]Observed, len(Programs))}
	tables.Observed[program] = observed
	return tables
}

func chainAtPriority(priority int32) Chain {
	chain := natChain
	chain.Priority = priority
	return chain
}

func TestFind(t *testing.T) {
	newer, older := uint64(ownHandle+1), uint64(ownHandle-1)
	empty := Chain{Translates: true, Priority: ruleset.PriorityDNAT}
	for name, test := range map[string]struct {
		tables map[model.Family]Tables
		want   []Conflict // except for their texts
	}{
		"nothing": {tables: map[model.Family]Tables{
			model.IPv4: tablesWith(ownHandle, nftables, Observed{}), model.IPv6: tablesWith(ownHandle, nftables, Observed{}),
		}},
		"a newer table precedes": {
			tables: map[model.Family]Tables{model.IPv4: tablesWith(ownHandle, nftables, Observed{newer, natChain, natChain})},
			want:   []Conflict{{Proxy: "kube-proxy-nftables", Tables: []string{"ip kube-proxy"}, Precedes: true}},
		},
		"the chains of an older table may be newer": {
			tables: map[model.Family]Tables{model.IPv6: tablesWith(ownHandle, nftables, Observed{older, natChain, natChain})},
			want:   []Conflict{{Proxy: "kube-proxy-nftables", Tables: []string{"ip6 kube-proxy"}}},
		},
		"both families are one conflict, which precedes in one of them": {
			tables: map[model.Family]Tables{
				model.IPv4: tablesWith(ownHandle, iptables, Observed{older, natChain, Chain{Uses: 2}}),
				model.IPv6: tablesWith(ownHandle, iptables, Observed{newer, natChain, Chain{Uses: 2}}),
			},
			want: []Conflict{{Proxy: "kube-proxy-iptables", Tables: []string{"ip nat", "ip6 nat"}, Precedes: true}},
		},
		"our table does not exist yet": {
			tables: map[model.Family]Tables{model.IPv4: tablesWith(0, nftables, Observed{newer, natChain, natChain})},
			want:   []Conflict{{Proxy: "kube-proxy-nftables", Tables: []string{"ip kube-proxy"}}},
		},
		"an older table at a lower priority precedes": {
			tables: map[model.Family]Tables{model.IPv4: tablesWith(ownHandle, nftables, Observed{older, chainAtPriority(-101), natChain})},
			want:   []Conflict{{Proxy: "kube-proxy-nftables", Tables: []string{"ip kube-proxy"}, Precedes: true}},
		},
		"a base chain after ours": {
			tables: map[model.Family]Tables{model.IPv4: tablesWith(ownHandle, nftables, Observed{newer, chainAtPriority(-99), natChain})},
		},
		"the table nat without kube-proxy's chain": {
			tables: map[model.Family]Tables{model.IPv4: tablesWith(ownHandle, iptables, Observed{newer, natChain, Chain{}})},
		},
		"kube-proxy's chain, flushed": {
			tables: map[model.Family]Tables{model.IPv4: tablesWith(ownHandle, iptables, Observed{newer, natChain, Chain{Uses: 0}})},
		},
		"kube-proxy's chain without a base chain": {
			tables: map[model.Family]Tables{model.IPv4: tablesWith(ownHandle, iptables, Observed{newer, Chain{}, Chain{Uses: 2}})},
		},
		"a table with an empty base chain": {
			tables: map[model.Family]Tables{model.IPv4: tablesWith(ownHandle, nftables, Observed{newer, empty, empty})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Find(test.tables)
			for i := range got {
				if got[i].Message == "" || got[i].Remedy == "" {
					t.Errorf("%s: no message or no remedy", got[i].Proxy)
				}
				got[i].Message, got[i].Remedy = "", ""
			}
			if diff := cmp.Diff(append([]Conflict{}, test.want...), got); diff != "" {
				t.Errorf("conflicts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConflictMessages tests the messages for the log, an Event and `proxy status`.
func TestConflictMessages(t *testing.T) {
	both := func(observed Observed) map[model.Family]Tables {
		return map[model.Family]Tables{model.IPv4: tablesWith(ownHandle, nftables, observed),
			model.IPv6: tablesWith(ownHandle, nftables, observed)}
	}
	for want, handle := range map[string]uint64{
		"kube-proxy in nftables mode handles new connections before this proxy: its rules (ip kube-proxy, " +
			"ip6 kube-proxy) come first": ownHandle + 1,
		"kube-proxy in nftables mode also has rules on this node (ip kube-proxy, ip6 kube-proxy): they handle what " +
			"this proxy does not serve, and take precedence if they are newer": ownHandle - 1,
	} {
		found := Find(both(Observed{handle, natChain, natChain}))
		if len(found) != 1 || found[0].Message != want {
			t.Errorf("got %+v, want %q", found, want)
		}
	}
}
