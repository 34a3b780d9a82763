package ruleset_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// statementCase is a rule and its text in nft's syntax in each family; the IPv4 text serves for both if there is only
// one.
type statementCase struct {
	rule       ruleset.Rule
	ipv4, ipv6 string
}

// statementCases have every statement, every field and every verdict, as rules that nft loads.
func statementCases() map[string]statementCase {
	fields := func(list ...ruleset.Field) []ruleset.Field { return list }
	frontend := fields(ruleset.DestinationAddr, ruleset.L4Proto, ruleset.DestinationPort)
	verdictRule := func(kind ruleset.VerdictKind, chain string) ruleset.Rule {
		return ruleset.Rule{ruleset.VerdictStatement{Verdict: ruleset.Verdict{Kind: kind, Chain: chain}}}
	}
	tcp := ruleset.ProtocolIs{Protocol: model.TCP}
	return map[string]statementCase{
		"ProtocolIs TCP":    {ruleset.Rule{tcp}, "meta l4proto tcp", ""},
		"ProtocolIs UDP":    {ruleset.Rule{ruleset.ProtocolIs{Protocol: model.UDP}}, "meta l4proto udp", ""},
		"ProtocolIs SCTP":   {ruleset.Rule{ruleset.ProtocolIs{Protocol: model.SCTP}}, "meta l4proto sctp", ""},
		"IsNew":             {ruleset.Rule{ruleset.IsNew{}}, "ct state new", ""},
		"HasDestinationNAT": {ruleset.Rule{ruleset.HasDestinationNAT{}}, "ct status dnat", ""},
		"SetLabel":          {ruleset.Rule{ruleset.SetLabel{Bit: 86}}, "ct label set 86", ""},
		"HasLabel":          {ruleset.Rule{ruleset.HasLabel{Bit: 86}}, "ct label 86", ""},
		"WritePriority":     {ruleset.Rule{ruleset.WritePriority{Number: 0xfd000001}}, "meta priority set fd00:1", ""},
		"WritePriority, 0":  {ruleset.Rule{ruleset.WritePriority{}}, "meta priority set none", ""},
		"Masquerade":        {ruleset.Rule{ruleset.Masquerade{}}, "masquerade fully-random", ""},
		"Reject":            {ruleset.Rule{ruleset.Reject{}}, "reject", ""},
		"Reject, TCP reset": {ruleset.Rule{tcp, ruleset.Reject{TCPReset: true}}, "meta l4proto tcp reject with tcp reset", ""},
		"Drop":              {verdictRule(ruleset.Drop, ""), "drop", ""},
		"Jump":              {verdictRule(ruleset.Jump, "there"), "jump there", ""},
		"Goto":              {verdictRule(ruleset.Goto, "there"), "goto there", ""},
		"InSet": {
			ruleset.Rule{ruleset.InSet{
				Key: fields(ruleset.SourceAddr, ruleset.DestinationAddr, ruleset.L4Proto, ruleset.DestinationPort), Set: ruleset.Hairpin,
			}},
			"ip saddr . ip daddr . meta l4proto . th dport @hairpin", "ip6 saddr . ip6 daddr . meta l4proto . th dport @hairpin",
		},
		"InSet, not": {
			ruleset.Rule{ruleset.InSet{Key: fields(ruleset.DestinationAddr), Set: ruleset.NodePortIPs, Not: true}},
			"ip daddr != @nodeport-ips", "ip6 daddr != @nodeport-ips",
		},
		"InPrefix": {
			ruleset.Rule{ruleset.InPrefix{Field: ruleset.DestinationAddr, Prefix: netip.MustParsePrefix("10.96.0.0/12")}},
			"ip daddr 10.96.0.0/12", "-",
		},
		"InPrefix, not": {
			ruleset.Rule{ruleset.InPrefix{Field: ruleset.OriginalSourceAddr, Prefix: netip.MustParsePrefix("10.244.0.0/16"), Not: true}},
			"ct original ip saddr != 10.244.0.0/16", "-",
		},
		"InPrefix, not, IPv6": {
			ruleset.Rule{ruleset.InPrefix{Field: ruleset.OriginalSourceAddr, Prefix: netip.MustParsePrefix("fd00:244::/32"), Not: true}},
			"-", "ct original ip6 saddr != fd00:244::/32",
		},
		"InPrefix of one address": {
			ruleset.Rule{ruleset.InPrefix{Field: ruleset.DestinationAddr, Prefix: netip.MustParsePrefix("::1/128"), Not: true}},
			"-", "ip6 daddr != ::1",
		},
		"FromInterface":    {ruleset.Rule{ruleset.FromInterface{}}, "iif != 0", ""},
		"NotFromInterface": {ruleset.Rule{ruleset.NotFromInterface{Name: "cbr0"}}, `iifname != "cbr0"`, ""},
		"NotFromInterface, by prefix": {
			ruleset.Rule{ruleset.NotFromInterface{Name: "veth", Prefix: true}}, `iifname != "veth*"`, "",
		},
		"IsLocal": {ruleset.Rule{ruleset.IsLocal{Field: ruleset.SourceAddr}}, "fib saddr type local", ""},
		"IsLocal, not": {
			ruleset.Rule{ruleset.IsLocal{Field: ruleset.DestinationAddr, Not: true}}, "fib daddr type != local", "",
		},
		"Return": {verdictRule(ruleset.Return, ""), "return", ""},
		"InSet, of the original destination": {
			ruleset.Rule{tcp, ruleset.InSet{
				Key: fields(ruleset.OriginalDestinationAddr, ruleset.L4Proto, ruleset.OriginalDestinationPort), Set: ruleset.ExternalCluster,
			}},
			"meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @external-cluster",
			"meta l4proto tcp ct original ip6 daddr . meta l4proto . ct original proto-dst @external-cluster",
		},
		"VerdictOf": {
			ruleset.Rule{ruleset.VerdictOf{Key: fields(ruleset.Priority), Map: ruleset.Dispatch}}, "meta priority vmap @dispatch", "",
		},
		"SetPriority of a client": {
			ruleset.Rule{ruleset.SetPriority{Key: fields(ruleset.Priority, ruleset.SourceAddr), Map: ruleset.Affinity(7)}},
			"meta priority set meta priority . ip saddr map @affinity-7", "meta priority set meta priority . ip6 saddr map @affinity-7",
		},
		"SetPriority": {
			ruleset.Rule{ruleset.SetPriority{Key: frontend, Map: ruleset.Services}},
			"meta priority set ip daddr . meta l4proto . th dport map @services",
			"meta priority set ip6 daddr . meta l4proto . th dport map @services",
		},
		"RandomSlot": {
			ruleset.Rule{ruleset.RandomSlot{Slots: 3, First: ruleset.ClusterSlot}},
			"meta priority set numgen random mod 3 offset 4244635648", "",
		},
		"PriorityBetween": {
			ruleset.Rule{ruleset.PriorityBetween{First: ruleset.LocalSlot, Last: ruleset.LastSlot}},
			"meta priority fc00:0-fdff:ffff", "",
		},
		"DNAT": {
			ruleset.Rule{ruleset.DNAT{Key: append(frontend[:3:3], ruleset.Priority), Map: ruleset.Endpoints}},
			"dnat ip to ip daddr . meta l4proto . th dport . meta priority map @endpoints",
			"dnat ip6 to ip6 daddr . meta l4proto . th dport . meta priority map @endpoints",
		},
		"DNAT by number": {
			ruleset.Rule{ruleset.DNAT{Key: fields(ruleset.L4Proto, ruleset.Priority), Map: ruleset.Numbered}},
			"dnat ip to meta l4proto . meta priority map @numbered", "dnat ip6 to meta l4proto . meta priority map @numbered",
		},
		"UpdateAffinity": {
			ruleset.Rule{ruleset.UpdateAffinity{Map: ruleset.Affinity(7), Mask: 0xfdffff00, Timeout: 90 * time.Minute}},
			"update @affinity-7 { meta priority & fdff:ff00 . ip saddr timeout 5400s : meta priority }",
			"update @affinity-7 { meta priority & fdff:ff00 . ip6 saddr timeout 5400s : meta priority }",
		},
		"DeleteAffinity": {
			ruleset.Rule{ruleset.DeleteAffinity{Map: ruleset.Affinity(7), Mask: 0xfdff0000}},
			"delete @affinity-7 { meta priority & fdff:0 . ip saddr : meta priority }",
			"delete @affinity-7 { meta priority & fdff:0 . ip6 saddr : meta priority }",
		},
	}
}

// textIn returns the text in a family, and whether the rule makes sense there.
func (c statementCase) textIn(family model.Family) (want string, ok bool) {
	want = c.ipv4
	if family == model.IPv6 && c.ipv6 != "" {
		want = c.ipv6
	}
	return want, want != "-"
}

// tablesWith returns tables with all sets and a chain to lead to, and the rule in their chain tried.
func tablesWith(t testing.TB, family model.Family, rule ruleset.Rule) *ruleset.Tables {
	t.Helper()
	tried := ruleset.Chain{Name: "tried", Hook: ruleset.NoHook, Rules: []ruleset.Rule{rule}}
	batch := ruleset.Batch{Ops: []ruleset.Op{opOn(ruleset.Add, ruleset.TableObject{})}}
	for _, set := range append([]ruleset.Set{ruleset.Affinity(7)}, ruleset.StaticSets...) {
		batch.Ops = append(batch.Ops, setOp(ruleset.Add, set))
	}
	batch.Ops = append(batch.Ops,
		chainOp(ruleset.Add, "there"), chainOp(ruleset.Add, "tried"), opOn(ruleset.Add, ruleset.RulesObject{Chain: tried}))
	for i := range batch.Ops {
		batch.Ops[i].Family = family
	}
	tables := &ruleset.Tables{}
	mustApply(t, tables, batch)
	return tables
}

// triedRule returns the rule of the chain tried in a listing.
func triedRule(listing string) string {
	_, rest, _ := strings.Cut(listing, "\tchain tried {\n")
	rules, _, _ := strings.Cut(rest, "\t}\n")
	return strings.TrimSpace(rules)
}

func TestTheTextOfEveryStatement(t *testing.T) {
	for name, test := range statementCases() {
		for _, family := range model.Families {
			want, ok := test.textIn(family)
			if !ok {
				continue
			}
			t.Run(name+" in "+family.String(), func(t *testing.T) {
				if diff := cmp.Diff(want, triedRule(text(t, tablesWith(t, family, test.rule)))); diff != "" {
					t.Errorf("text (-want +got):\n%s", diff)
				}
			})
		}
	}
}
