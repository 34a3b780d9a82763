//go:build linux

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// form is a rule and nft's listing of it, with X for the family's keyword; empty if the test does not specify it.
type form struct {
	text string
	rule ruleset.Rule
}

func TestEveryFormOfAStatementIsListedAsIntended(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			forms := slices.Concat(statementForms(), prefixForms(family), rangeForms(family))
			batch := formsBatch(family, forms)
			namespace := netns.New(t)
			commit(t, dial(t, namespace, Options{}), batch)
			checkListed(t, namespace, batch, family)

			listed := namespace.NFT("-T", "list", "ruleset")
			for i, form := range forms {
				if form.text == "" {
					continue
				}
				want := fmt.Sprintf("chain form-%03d {\n\t\t%s\n\t}", i, strings.ReplaceAll(form.text, "X", ruleset.Keyword(family)))
				if !strings.Contains(listed, want) {
					t.Errorf("nft does not list %s", want)
				}
			}
		})
	}
}

// formsBatch adds a table with every set, empty, a chain for each form, and the chain "target" that verdicts lead to.
func formsBatch(family model.Family, forms []form) ruleset.Batch {
	o := operations{emptyMaps(family, append(slices.Clone(ruleset.StaticSets), affinity)...)}
	o.do(ruleset.Add, family, ruleset.CounterObject{Name: "counted"})
	var chains []ruleset.Chain
	for i, form := range forms {
		chains = append(chains, regular(fmt.Sprintf("form-%03d", i), form.rule))
	}
	chains = append(chains, regular("target"))
	for _, chain := range chains {
		o.do(ruleset.Add, family, ruleset.ChainObject{Chain: chain})
	}
	for _, chain := range chains {
		o.do(ruleset.Add, family, ruleset.RulesObject{Chain: chain})
	}
	return o.Batch
}

func statementForms() []form {
	tcp := ruleset.ProtocolIs{Protocol: model.TCP}
	priority := []ruleset.Field{ruleset.Priority}
	source, destination := []ruleset.Field{ruleset.SourceAddr}, []ruleset.Field{ruleset.DestinationAddr}
	return append(linkForms(), []form{
		{"meta l4proto tcp", ruleset.Rule{tcp}},
		{"meta l4proto udp", ruleset.Rule{ruleset.ProtocolIs{Protocol: model.UDP}}},
		{"meta l4proto sctp", ruleset.Rule{ruleset.ProtocolIs{Protocol: model.SCTP}}},
		{"fib saddr type local", ruleset.Rule{ruleset.IsLocal{Field: ruleset.SourceAddr}}},
		{"fib saddr type != local", ruleset.Rule{ruleset.IsLocal{Field: ruleset.SourceAddr, Not: true}}},
		{"fib daddr type local", ruleset.Rule{ruleset.IsLocal{Field: ruleset.DestinationAddr}}},
		{"fib daddr type != local", ruleset.Rule{ruleset.IsLocal{Field: ruleset.DestinationAddr, Not: true}}},
		{"X daddr @cluster-ips", ruleset.Rule{ruleset.InSet{Key: destination, Set: ruleset.ClusterIPs}}},
		{"X daddr != @nodeport-ips", ruleset.Rule{ruleset.InSet{Key: destination, Set: ruleset.NodePortIPs, Not: true}}},
		{"X saddr @cluster-ips", ruleset.Rule{ruleset.InSet{Key: source, Set: ruleset.ClusterIPs}}},
		{"meta l4proto tcp meta l4proto . ct original proto-dst != @nodeport-local",
			ruleset.Rule{tcp, ruleset.InSet{Key: originalFields[1:], Set: ruleset.NodePortLocal, Not: true}}},
		{"ct state new", ruleset.Rule{ruleset.IsNew{}}},
		{"ct status dnat", ruleset.Rule{ruleset.HasDestinationNAT{}}},
		{"ct label set 0", ruleset.Rule{ruleset.SetLabel{}}},
		{"ct label set 86", ruleset.Rule{ruleset.SetLabel{Bit: 86}}},
		{"ct label 86", ruleset.Rule{ruleset.HasLabel{Bit: 86}}},
		{"ct label 127", ruleset.Rule{ruleset.HasLabel{Bit: 127}}},
		{"meta priority vmap @dispatch", ruleset.Rule{ruleset.VerdictOf{Key: priority, Map: ruleset.Dispatch}}},
		{"meta priority set meta l4proto . th dport map @nodeports",
			ruleset.Rule{ruleset.SetPriority{Key: nodePortFields, Map: ruleset.NodePorts}}},
		{"meta priority set none", ruleset.Rule{ruleset.WritePriority{}}},
		{"meta priority set f000:100", ruleset.Rule{ruleset.WritePriority{Number: 0xf0000100}}},
		{"meta priority set meta priority . X saddr map @affinity-7", ruleset.Rule{
			ruleset.SetPriority{Key: []ruleset.Field{ruleset.Priority, ruleset.SourceAddr}, Map: affinity}}},
		{"meta priority e000:0-ff00:ffff", ruleset.Rule{ruleset.PriorityBetween{First: 0xe0000000, Last: 0xff00ffff}}},
		{"meta priority set numgen random mod 1 offset 4227858432", ruleset.Rule{ruleset.RandomSlot{Slots: 1, First: ruleset.LocalSlot}}},
		{"meta priority set numgen random mod 4095 offset 4227858432",
			ruleset.Rule{ruleset.RandomSlot{Slots: ruleset.MaxLocalSlots, First: ruleset.LocalSlot}}},
		{"meta priority set numgen random mod 65535 offset 4244635648",
			ruleset.Rule{ruleset.RandomSlot{Slots: ruleset.MaxSlots, First: ruleset.ClusterSlot}}},
		{"dnat X to meta l4proto . meta priority map @numbered",
			ruleset.Rule{ruleset.DNAT{Key: []ruleset.Field{ruleset.L4Proto, ruleset.Priority}, Map: ruleset.Numbered}}},
		{"update @affinity-7 { meta priority & fdff:ff00 . X saddr timeout 86400s : meta priority }",
			ruleset.Rule{ruleset.UpdateAffinity{Map: affinity, Mask: 0xfdffff00, Timeout: 24 * time.Hour}}},
		{"delete @affinity-7 { meta priority & fdff:0 . X saddr : meta priority }",
			ruleset.Rule{ruleset.DeleteAffinity{Map: affinity, Mask: 0xfdff0000}}},
		{"masquerade fully-random", ruleset.Rule{ruleset.Masquerade{}}},
		{"reject", ruleset.Rule{ruleset.Reject{}}},
		{"reject with tcp reset", ruleset.Rule{tcp, ruleset.Reject{TCPReset: true}}},
		{`counter name "counted"`, ruleset.Rule{ruleset.Count{Counter: "counted"}}},
		{"drop", ruleset.Rule{verdictOf(ruleset.Drop, "")}},
		{"return", ruleset.Rule{verdictOf(ruleset.Return, "")}},
		{"jump target", ruleset.Rule{verdictOf(ruleset.Jump, "target")}},
		{"goto target", ruleset.Rule{verdictOf(ruleset.Goto, "target")}},
	}...)
}

// linkForms are names of links and prefixes of names, of every length: nft has no room for the 15 letters of the
// longest name plus an asterisk.
func linkForms() []form {
	var forms []form
	for _, name := range []string{"a", "eth0", "br-6d2a1c", "vlan.100", "cni@podman", "fourteenletter", "fifteen-letters"} {
		forms = append(forms, form{`iifname != "` + name + `"`, ruleset.Rule{ruleset.NotFromInterface{Name: name}}})
		if len(name) < 15 {
			forms = append(forms, form{`iifname != "` + name + `*"`, ruleset.Rule{ruleset.NotFromInterface{Name: name, Prefix: true}}})
		}
	}
	return forms
}

// prefixForms are the prefixes that end at a byte and those that do not, for each field that is compared.
func prefixForms(family model.Family) []form {
	prefixes := []string{
		"0.0.0.0/0", "128.0.0.0/1", "10.0.0.0/8", "10.240.0.0/12", "10.244.0.0/16", "10.1.2.0/24",
		"10.244.1.128/25", "10.1.2.2/31", "10.1.2.3/32",
	}
	if family == model.IPv6 {
		prefixes = []string{
			"::/0", "fc00::/7", "fd00::/8", "fd00:1000::/21", "fd00:10:244::/64", "fd00:10:96::/108",
			"fd00::1:0/112", "fd00::2/127", "fd00::1/128",
		}
	}
	fieldTexts := map[ruleset.Field]string{
		ruleset.SourceAddr: "X saddr", ruleset.DestinationAddr: "X daddr", ruleset.OriginalSourceAddr: "ct original X saddr",
	}
	var forms []form
	for _, text := range prefixes {
		prefix := netip.MustParsePrefix(text)
		listed := strings.TrimSuffix(strings.TrimSuffix(text, "/32"), "/128")
		for field, fieldText := range fieldTexts {
			forms = append(forms,
				form{fieldText + " " + listed, ruleset.Rule{ruleset.InPrefix{Field: field, Prefix: prefix}}},
				form{fieldText + " != " + listed, ruleset.Rule{ruleset.InPrefix{Field: field, Prefix: prefix, Not: true}}})
		}
	}
	return forms
}

// rangeForms are the ranges of every length, two of them with their text.
func rangeForms(family model.Family) []form {
	texts := map[int]string{32: "X saddr . X saddr", 20: "X saddr & 255.255.240.0 . X saddr | 0.0.15.255"}
	if family == model.IPv6 {
		texts = map[int]string{
			128: "X saddr . X saddr", 52: "X saddr & ffff:ffff:ffff:f000:: . X saddr | ::fff:ffff:ffff:ffff:ffff",
		}
	}
	var forms []form
	for bits := range model.AnyAddr(family).BitLen() + 1 {
		text := "" // it is compared only with what is printed
		if client, isWritten := texts[bits]; isWritten {
			text = "meta priority . " + client + " @sources"
		}
		forms = append(forms, form{text, ruleset.Rule{ruleset.FromRange{Bits: bits, Set: ruleset.Sources}}})
	}
	return forms
}
