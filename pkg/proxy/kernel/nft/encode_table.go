//go:build linux

package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func (e *encoder) tableOp(op ruleset.Op) error {
	switch op.Verb {
	case ruleset.Add:
		e.addTable(nfproto(op.Family), e.targetTable(), desiredFlags(e.owned))
	case ruleset.Delete:
		e.beginNFT(unix.NFT_MSG_DELTABLE, 0, nfproto(op.Family))
		e.text(unix.NFTA_TABLE_NAME, e.targetTable())
		e.end()
	case ruleset.Flush:
		return errNoSuchOperation
	}
	return nil
}

// objectByName appends a message that names an object in our table, and has nothing else. The attribute for the table
// is the first one of every such message.
func (m *messages) objectByName(kind uint16, family byte, nameAttribute uint16, name string) {
	m.beginNFT(kind, 0, family)
	m.text(unix.NFTA_CHAIN_TABLE, m.targetTable())
	m.text(nameAttribute, name)
	m.end()
}

func (m *messages) addTable(family byte, name string, flags uint32) {
	m.beginNFT(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, family)
	m.text(unix.NFTA_TABLE_NAME, name)
	m.number(unix.NFTA_TABLE_FLAGS, flags)
	m.end()
}

func (e *encoder) chainOp(op ruleset.Op, chain ruleset.Chain) error {
	family := nfproto(op.Family)
	switch op.Verb {
	case ruleset.Add:
		e.addChain(family, chain)
	case ruleset.Delete:
		e.objectByName(unix.NFT_MSG_DELCHAIN, family, unix.NFTA_CHAIN_NAME, chain.Name)
	case ruleset.Flush: // a deletion without rules deletes all of the chain
		e.objectByName(unix.NFT_MSG_DELRULE, family, unix.NFTA_RULE_CHAIN, chain.Name)
	}
	return nil
}

func (e *encoder) addChain(family byte, chain ruleset.Chain) {
	e.beginNFT(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, family)
	e.text(unix.NFTA_CHAIN_TABLE, e.targetTable())
	e.text(unix.NFTA_CHAIN_NAME, chain.Name)
	if chain.Hook != ruleset.NoHook {
		hook := e.nest(unix.NFTA_CHAIN_HOOK)
		e.number(unix.NFTA_HOOK_HOOKNUM, uint32(chain.Hook))
		e.number(unix.NFTA_HOOK_PRIORITY, uint32(chain.Priority))
		e.endNest(hook)
		e.number(unix.NFTA_CHAIN_POLICY, verdictAccept)
		e.text(unix.NFTA_CHAIN_TYPE, "nat")
	}
	e.end()
}

func (e *encoder) rulesOp(op ruleset.Op, chain ruleset.Chain) error {
	if op.Verb != ruleset.Add {
		return errNoSuchOperation
	}
	for i, rule := range chain.Rules {
		if err := e.addRule(op.Family, chain.Name, rule); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return nil
}

func (e *encoder) addRule(family model.Family, chain string, rule ruleset.Rule) error {
	e.beginNFT(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, nfproto(family))
	e.text(unix.NFTA_RULE_TABLE, e.targetTable())
	e.text(unix.NFTA_RULE_CHAIN, chain)
	list := e.nest(unix.NFTA_RULE_EXPRESSIONS)
	if err := e.expressions(family, rule); err != nil {
		return err
	}
	e.endNest(list)
	e.end()
	return nil
}

// expressions appends the expressions of a rule.
func (m *messages) expressions(family model.Family, rule ruleset.Rule) error {
	for _, statement := range rule {
		expressions, err := expressionsOf(family, statement)
		if err != nil {
			return err
		}
		for _, expression := range expressions {
			encoded, err := expr.Marshal(nfproto(family), expression)
			if err != nil {
				return fmt.Errorf("%T: %w", statement, err)
			}
			m.bytes(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, encoded)
		}
	}
	return nil
}
