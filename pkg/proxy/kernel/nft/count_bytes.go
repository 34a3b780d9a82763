//go:build linux

package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// CountBytes makes conntrack count bytes from now on, in the network namespace of the calling thread, even where
// sysctls are read-only: the kernel enables counting for a rule that reads bytes, and keeps it enabled. The rule is
// only tested, so that no trace of it is left.
func CountBytes() (err error) {
	s, err := openQuerySocket()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.conn.Close()) }()
	if err := try(s, readBytes); err != nil {
		return fmt.Errorf("enable counting of bytes in conntrack: %w", err)
	}
	return nil
}

// readBytes adds a rule that reads the bytes of a connection, with a table and a chain for it.
func readBytes(e *encoder, name string) {
	family := nfproto(model.IPv4)
	e.tableName = name
	e.addTable(family, name, 0)
	e.addChain(family, ruleset.Chain{Name: name, Hook: ruleset.NoHook})
	e.beginNFT(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, family)
	e.text(unix.NFTA_RULE_TABLE, name)
	e.text(unix.NFTA_RULE_CHAIN, name)
	list := e.nest(unix.NFTA_RULE_EXPRESSIONS)
	encoded, err := expr.Marshal(family, &expr.Ct{Key: expr.CtKeyBYTES, Register: firstRegister})
	if err != nil {
		panic(err) // the expression is a constant
	}
	e.bytes(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, encoded)
	e.endNest(list)
	e.end()
}
