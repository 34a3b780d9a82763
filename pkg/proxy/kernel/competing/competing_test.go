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

const ours = 5 // the handle of our table

// translating is a base chain that leads to something.
var translating = Chain{Translates: true, Priority: ruleset.PriorityDNAT, Uses: 1}

// holding returns a family in which the kernel has tables of one program.
func holding(ours uint64, program int, held Observed) Tables {
	tables := Tables{OwnHandle: ours, Observed: make([]Observed, len(Programs))}
	tables.Observed[program] = held
	return tables
}

func at(priority int32) Chain {
	chain := translating
	chain.Priority = priority
	return chain
}

func TestFind(t *testing.T) {
	younger, older := uint64(ours+1), uint64(ours-1)
	empty := Chain{Translates: true, Priority: ruleset.PriorityDNAT}
	for name, test := range map[string]struct {
		tables map[model.Family]Tables
		want   []Conflict // except for their texts
	}{
		"nothing": {tables: map[model.Family]Tables{
			model.IPv4: holding(ours, nftables, Observed{}), model.IPv6: holding(ours, nftables, Observed{}),
		}},
		"a newer table precedes": {
			tables: map[model.Family]Tables{model.IPv4: holding(ours, nftables, Observed{younger, translating, translating})},
			want:   []Conflict{{Proxy: "kube-proxy-nftables", Tables: []string{"ip kube-proxy"}, Precedes: true}},
		},
		"the chains of an older table may be newer": {
			tables: map[model.Family]Tables{model.IPv6: holding(ours, nftables, Observed{older, translating, translating})},
			want:   []Conflict{{Proxy: "kube-proxy-nftables", Tables: []string{"ip6 kube-proxy"}}},
		},
		"both families are one conflict, which precedes in one of them": {
			tables: map[model.Family]Tables{
				model.IPv4: holding(ours, iptables, Observed{older, translating, Chain{Uses: 2}}),
				model.IPv6: holding(ours, iptables, Observed{younger, translating, Chain{Uses: 2}}),
			},
			want: []Conflict{{Proxy: "kube-proxy-iptables", Tables: []string{"ip nat", "ip6 nat"}, Precedes: true}},
		},
		"our table does not exist yet": {
			tables: map[model.Family]Tables{model.IPv4: holding(0, nftables, Observed{younger, translating, translating})},
			want:   []Conflict{{Proxy: "kube-proxy-nftables", Tables: []string{"ip kube-proxy"}}},
		},
		"an older table at a lower priority precedes": {
			tables: map[model.Family]Tables{model.IPv4: holding(ours, nftables, Observed{older, at(-101), translating})},
			want:   []Conflict{{Proxy: "kube-proxy-nftables", Tables: []string{"ip kube-proxy"}, Precedes: true}},
		},
		"after our chain": {
			tables: map[model.Family]Tables{model.IPv4: holding(ours, nftables, Observed{younger, at(-99), translating})},
		},
		"the table nat without kube-proxy's chain": {
			tables: map[model.Family]Tables{model.IPv4: holding(ours, iptables, Observed{younger, translating, Chain{}})},
		},
		"its chain, flushed": {
			tables: map[model.Family]Tables{model.IPv4: holding(ours, iptables, Observed{younger, translating, Chain{Uses: 0}})},
		},
		"its chain without a base chain": {
			tables: map[model.Family]Tables{model.IPv4: holding(ours, iptables, Observed{younger, Chain{}, Chain{Uses: 2}})},
		},
		"a table with an empty base chain": {
			tables: map[model.Family]Tables{model.IPv4: holding(ours, nftables, Observed{younger, empty, empty})},
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
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTexts tests the messages for the log, an Event and `proxy status`.
func TestTexts(t *testing.T) {
	both := func(held Observed) map[model.Family]Tables {
		return map[model.Family]Tables{model.IPv4: holding(ours, nftables, held), model.IPv6: holding(ours, nftables, held)}
	}
	for want, handle := range map[string]uint64{
		"kube-proxy in nftables mode handles new connections before this proxy: its rules (ip kube-proxy, " +
			"ip6 kube-proxy) are newer": ours + 1,
		"kube-proxy in nftables mode also has rules on this node (ip kube-proxy, ip6 kube-proxy): they handle what " +
			"this proxy does not serve, and take precedence if they are newer": ours - 1,
	} {
		found := Find(both(Observed{handle, translating, translating}))
		if len(found) != 1 || found[0].Message != want {
			t.Errorf("got %+v, want %q", found, want)
		}
	}
}
