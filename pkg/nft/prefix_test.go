//go:build linux

package nft

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/netnstest"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// checkPrefix programs a rule with a prefix and compares it with what nft itself makes of the same text.
func checkPrefix(t *testing.T, family model.Family, text string) {
	t.Helper()
	namespace, other := netnstest.New(t), netnstest.New(t)
	chain := ruleset.Chain{Name: "c", Hook: ruleset.NoHook, Rules: []ruleset.Rule{
		{ruleset.NotInPrefix{Field: ruleset.OriginalSourceAddr, Prefix: netip.MustParsePrefix(text)}},
	}}
	var o operations
	o.do(ruleset.Add, family, ruleset.TableObject{}).
		do(ruleset.Add, family, ruleset.ChainObject{Chain: chain}).
		do(ruleset.Add, family, ruleset.RulesObject{Chain: chain})
	commit(t, dial(t, namespace, Options{}), o.Batch)

	rule := "ct original " + ruleset.Keyword(family) + " saddr != " + strings.TrimSuffix(strings.TrimSuffix(text, "/32"), "/128")
	other.Load("table " + tableText(family) + " {\n chain c { " + rule + "; }\n}\n")

	listed := namespace.NFT("--debug=netlink", "list", "ruleset")
	if want := other.NFT("--debug=netlink", "list", "ruleset"); bare(listed) != bare(want) {
		t.Errorf("our rule is\n%s\nwant\n%s", listed, want)
	}
	if !strings.Contains(listed, "\t"+rule+"\n") {
		t.Errorf("nft lists\n%s\nwithout %q", listed, rule)
	}
}
