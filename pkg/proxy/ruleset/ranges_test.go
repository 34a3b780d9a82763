package ruleset_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// source is an element of allowed-sources: port 80 of an address, and who may dial it.
func source(addr, prefix string) ruleset.Element {
	from := netip.MustParsePrefix(prefix)
	return ruleset.Element{Key: ruleset.Tuple{
		Addr: netip.MustParseAddr(addr), Proto: model.TCP, Port: 80, Source: from.Addr(), Bits: uint8(from.Bits()),
	}}
}

// TestRangesOfOneFrontendNeverOverlap, or the kernel refuses the batch.
func TestRangesOfOneFrontendNeverOverlap(t *testing.T) {
	const here = "203.0.113.1"
	another := source(here, "192.0.2.64/26")
	another.Key.Proto = model.UDP
	add := func(elements ...ruleset.Element) ruleset.Op {
		return elementOp(ruleset.Add, ruleset.AllowedSources, elements...)
	}
	for name, test := range map[string]struct {
		ops     []ruleset.Op
		refused string // both ranges, if it is refused
	}{
		"a range beside it":           {[]ruleset.Op{add(source(here, "192.0.2.128/25"))}, ""},
		"the same range once more":    {[]ruleset.Op{add(source(here, "192.0.2.0/25"))}, ""},
		"a range inside it":           {[]ruleset.Op{add(source(here, "192.0.2.64/26"))}, "192.0.2.64/26 overlaps 192.0.2.0/25"},
		"a range that begins with it": {[]ruleset.Op{add(source(here, "192.0.2.0/24"))}, "192.0.2.0/25 overlaps 192.0.2.0/24"},
		"a range that encloses it":    {[]ruleset.Op{add(source(here, "192.0.0.0/16"))}, "192.0.2.0/25 overlaps 192.0.0.0/16"},
		"an address inside it":        {[]ruleset.Op{add(source(here, "192.0.2.7/32"))}, "192.0.2.7 overlaps 192.0.2.0/25"},
		"two of one operation": {
			[]ruleset.Op{add(source(here, "10.0.0.0/9"), source(here, "10.1.0.0/16"))}, "10.1.0.0/16 overlaps 10.0.0.0/9",
		},
		"a range inside that of another address":  {[]ruleset.Op{add(source("203.0.113.2", "192.0.2.64/26"))}, ""},
		"a range inside that of another protocol": {[]ruleset.Op{add(another)}, ""},
		"a range inside one that is deleted first": {[]ruleset.Op{
			elementOp(ruleset.Delete, ruleset.AllowedSources, source(here, "192.0.2.0/25")), add(source(here, "192.0.2.64/26")),
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tables := emptyTable(t)
			mustApply(t, tables, ruleset.Batch{Ops: []ruleset.Op{setOp(ruleset.Add, ruleset.AllowedSources), add(source(here, "192.0.2.0/25"))}})
			before := text(t, tables)
			err := tables.Apply(ruleset.Batch{Ops: test.ops})
			if test.refused == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, ruleset.ErrExist) || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("error %v, want %v that says %q", err, ruleset.ErrExist, test.refused)
			}
			if diff := cmp.Diff(before, text(t, tables)); diff != "" {
				t.Errorf("a batch that failed changed the tables (-before +after):\n%s", diff)
			}
		})
	}
}
