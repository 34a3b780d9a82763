//go:build linux

package nft

import (
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
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

// naming appends a message that says of an object in our table no more than its name. The attribute for the table is the first one
// of every such message.
func (m *messages) naming(kind uint16, family byte, object uint16, name string) {
	m.table(kind, 0, family)
	m.text(unix.NFTA_CHAIN_TABLE, ruleset.TableName)
	m.text(object, name)
	m.end()
}

func (m *messages) addTable(family byte, name string, flags uint32) {
	m.table(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, family)
	m.text(unix.NFTA_TABLE_NAME, name)
	m.number(unix.NFTA_TABLE_FLAGS, flags)
	m.end()
}
