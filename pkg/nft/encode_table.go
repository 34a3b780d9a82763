//go:build linux

package nft

import (
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

func (e *encoder) tableOp(op ruleset.Op) error {
	switch op.Verb {
	case ruleset.Add:
		e.addTable(number(op.Family), ruleset.TableName, wantedFlags(e.owned))
	case ruleset.Delete:
		e.table(unix.NFT_MSG_DELTABLE, 0, number(op.Family))
		e.text(unix.NFTA_TABLE_NAME, ruleset.TableName)
		e.end()
	case ruleset.Flush:
		return errNoSuchOperation
	}
	return nil
}

func (m *messages) addTable(family byte, name string, flags uint32) {
	m.table(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, family)
	m.text(unix.NFTA_TABLE_NAME, name)
	m.number(unix.NFTA_TABLE_FLAGS, flags)
	m.end()
}
