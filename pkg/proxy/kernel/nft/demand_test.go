//go:build linux

package nft

import (
	"errors"
	"maps"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// demandFrontends returns a frontend with an address and a node port.
func demandFrontends(family model.Family) map[model.Frontend]bool {
	return map[model.Frontend]bool{
		{Addr: addressesOf(family).service, Protocol: model.TCP, Port: 80}: true,
		{Addr: model.AnyAddr(family), Protocol: model.UDP, Port: 30080}:    true,
	}
}

// counts returns the counts of all frontends.
func counts(t *testing.T, c *Conn, family model.Family) map[model.Frontend]uint64 {
	t.Helper()
	found := map[model.Frontend]uint64{}
	if err := c.DemandCounts(t.Context(), family, func(f model.Frontend, count uint64) { found[f] = count }); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTheDemandTableIsListedAndLoadsAgain(t *testing.T) {
	want := `table ip vicinity-demand {
	set demand {
		type ipv4_addr . inet_proto . inet_service
		counter
		elements = { 10.96.0.1 . 6 . 80 counter packets N bytes N }
	}

	set demand-nodeports {
		type inet_proto . inet_service
		counter
		elements = { 17 . 30080 counter packets N bytes N }
	}

	chain demand {
		meta l4proto 6 ct original ip daddr . meta l4proto . ct original proto-dst @demand
		meta l4proto 17 ct original ip daddr . meta l4proto . ct original proto-dst @demand
		meta l4proto 132 ct original ip daddr . meta l4proto . ct original proto-dst @demand
		meta l4proto 6 ct label 87 meta l4proto . ct original proto-dst @demand-nodeports
		meta l4proto 17 ct label 87 meta l4proto . ct original proto-dst @demand-nodeports
		meta l4proto 132 ct label 87 meta l4proto . ct original proto-dst @demand-nodeports
	}

	chain nat-input {
		type nat hook input priority 90; policy accept;
		ct state 0x8 ct label 86 jump demand
	}

	chain nat-postrouting {
		type nat hook postrouting priority 90; policy accept;
		ct state 0x8 ct label 86 jump demand
	}
}
`
	namespace, other := netns.New(t), netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, ruleset.AddDemandTable(model.IPv4))
	commit(t, c, ruleset.UpdateDemandTable(model.IPv4, nil, demandFrontends(model.IPv4)))
	listed := namespace.NFT("-n", "list", "ruleset")
	numbers := regexp.MustCompile(`(packets|bytes) \d+`)
	if diff := cmp.Diff(want, numbers.ReplaceAllString(listed, "$1 N")); diff != "" {
		t.Errorf("nft's listing (-want +got):\n%s", diff)
	}
	other.Load(listed)
}

func TestConnectionsAreCountedAndChangesKeepTheCounts(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			namespace := netns.New(t)
			serve(t, namespace, family)
			c := dial(t, namespace, Options{Owned: true})
			commit(t, c, everythingWithAffinity(family, time.Hour))
			labelling := ruleset.Chain{Name: "labelling", Hook: ruleset.Output, Priority: ruleset.PriorityDNAT - 1, Rules: []ruleset.Rule{
				{ruleset.SetLabel{Bit: ruleset.TranslatedLabel}},
			}}
			var o operations
			o.do(ruleset.Add, family, ruleset.ChainObject{Chain: labelling}).do(ruleset.Add, family, ruleset.RulesObject{Chain: labelling})
			commit(t, c, o.Batch)
			if exists, err := c.HasDemandTable(t.Context(), family, ruleset.DemandTableName); exists || err != nil {
				t.Errorf("HasDemandTable = %v, %v; want false before the table is added", exists, err)
			}
			err := c.DemandCounts(t.Context(), family, func(model.Frontend, uint64) {})
			if !errors.Is(err, ErrNoTable) {
				t.Errorf("without a table the error is %v, want %v", err, ErrNoTable)
			}
			commit(t, c, ruleset.AddDemandTable(family))
			want := demandFrontends(family)
			commit(t, c, ruleset.UpdateDemandTable(family, nil, want))
			for range 3 {
				connect(t, namespace, family)
			}
			dialled := model.Frontend{Addr: addressesOf(family).service, Protocol: model.TCP, Port: 80}
			if got := counts(t, c, family)[dialled]; got != 3 {
				t.Errorf("%d connections are counted, want 3", got)
			}

			more := maps.Clone(want)
			delete(more, model.Frontend{Addr: model.AnyAddr(family), Protocol: model.UDP, Port: 30080})
			more[model.Frontend{Addr: addressesOf(family).endpoint, Protocol: model.SCTP, Port: 7}] = true
			commit(t, c, ruleset.UpdateDemandTable(family, want, more))
			commit(t, c, ruleset.UpdateDemandTable(family, nil, want))
			connect(t, namespace, family)
			found := counts(t, c, family)
			if len(found) != 3 || found[dialled] != 4 {
				t.Errorf("got counts %v, want three frontends, and four connections to %v", found, dialled)
			}

			former := ruleset.DemandTableNames[1]
			namespace.NFT("add", "table", ruleset.Keyword(family), former)
			if exists, err := c.HasDemandTable(t.Context(), family, former); !exists || err != nil {
				t.Errorf("HasDemandTable = %v, %v; want true for the table of an earlier version", exists, err)
			}
			var deleted []model.Family
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			namespace.Do(func() { deleted, err = Cleanup(t.Context()) })
			if err != nil || len(deleted) != 1 || namespace.NFT("list", "ruleset") != "" {
				t.Errorf("cleanup deleted %v, error %v; what remains:\n%s", deleted, err, namespace.NFT("list", "ruleset"))
			}
		})
	}
}
