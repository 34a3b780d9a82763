//go:build linux

package nft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// transaction collects the notifications of one transaction. The kernel sends one for each changed object, and at the
// end the new generation with the process that made the change.
type transaction struct {
	families []model.Family
}

func (t *transaction) read(b []byte, changed func(ExternalChange)) {
	for m, err := range parseMessages(b) {
		if err != nil {
			t.families = nil
			changed(ExternalChange{Families: model.Families, Overrun: true})
			return
		}
		kind, ok := m.nftKind()
		if !ok {
			continue
		}
		if kind == unix.NFT_MSG_NEWGEN {
			t.finish(m, changed)
			continue
		}
		t.addTable(m)
	}
}

// addTable records the table of a changed object. The first attribute is the table's name, whether the message is about
// a table, a chain, a set, a counter, a rule or a list of elements.
func (t *transaction) addTable(m message) {
	kernelFamily, body := m.family()
	if textOf(body, unix.NFTA_TABLE_NAME) != ruleset.TableName {
		return
	}
	for _, family := range model.Families {
		if nfproto(family) == kernelFamily && !slices.Contains(t.families, family) {
			t.families = append(t.families, family)
		}
	}
}

func (t *transaction) finish(m message, changed func(ExternalChange)) {
	families := t.families
	t.families = nil
	if len(families) == 0 {
		return
	}
	slices.Sort(families)
	_, body := m.family()
	pid, _ := numberOf(body, unix.NFTA_GEN_PROC_PID)
	changed(ExternalChange{Families: families, PID: pid, Process: textOf(body, unix.NFTA_GEN_PROC_NAME)})
}
