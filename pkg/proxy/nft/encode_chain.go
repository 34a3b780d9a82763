//go:build linux

package nft

import (
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func (e *encoder) chainOp(op ruleset.Op, chain ruleset.Chain) error {
	family := number(op.Family)
	switch op.Verb {
	case ruleset.Add:
		e.addChain(family, chain)
	case ruleset.Delete:
		e.naming(unix.NFT_MSG_DELCHAIN, family, unix.NFTA_CHAIN_NAME, chain.Name)
	case ruleset.Flush: // deleting rules without saying which means all of the chain
		e.naming(unix.NFT_MSG_DELRULE, family, unix.NFTA_RULE_CHAIN, chain.Name)
	}
	return nil
}

func (e *encoder) addChain(family byte, chain ruleset.Chain) {
	e.table(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, family)
	e.text(unix.NFTA_CHAIN_TABLE, ruleset.TableName)
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
