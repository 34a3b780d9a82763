//go:build linux

package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

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
	e.table(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, number(family))
	e.text(unix.NFTA_RULE_TABLE, ruleset.TableName)
	e.text(unix.NFTA_RULE_CHAIN, chain)
	list := e.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, statement := range rule {
		expressions, err := expressionsOf(family, statement)
		if err != nil {
			return err
		}
		for _, expression := range expressions {
			encoded, err := expr.Marshal(number(family), expression)
			if err != nil {
				return fmt.Errorf("%T: %w", statement, err)
			}
			e.bytes(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, encoded)
		}
	}
	e.endNest(list)
	e.end()
	return nil
}
