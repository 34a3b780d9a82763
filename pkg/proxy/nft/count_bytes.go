//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// CountBytes has conntrack count bytes from now on, in the network namespace of the calling thread, even where sysctls
// are read-only: the kernel turns counting on for a rule that reads bytes, and leaves it on. The rule is in a batch
// without an end, which the kernel checks and throws away, so that no trace of it is left.
func CountBytes() (err error) {
	s, err := openAskingSocket()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.conn.Close()) }()
	if err := s.send(readingBytes(fmt.Sprintf("vicinity-probe-%d", s.conn.PID()))); err != nil {
		return err
	}
	//nolint:forbidigo // no wait: the kernel has answered when send returns
	outcome, err := s.outcome(context.Background(), 0, 3)
	if err != nil {
		return err
	}
	for _, failure := range outcome {
		return fmt.Errorf("asking for a rule that reads bytes of conntrack: %w", failure.errno)
	}
	return nil
}

// readingBytes is a batch with a rule that reads the bytes of a connection.
func readingBytes(name string) []byte {
	e := &encoder{}
	family := number(model.IPv4)
	e.frame(unix.NFNL_MSG_BATCH_BEGIN)
	e.addTable(family, name, 0)
	e.table(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, family)
	e.text(unix.NFTA_CHAIN_TABLE, name)
	e.text(unix.NFTA_CHAIN_NAME, name)
	e.end()
	e.table(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, family)
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
	e.addFlags(unix.NLM_F_ACK)
	return e.b
}
