//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func (e *encoder) counterOp(op ruleset.Op, name string) error {
	switch op.Verb {
	case ruleset.Add:
		e.beginCounter(unix.NFT_MSG_NEWOBJ, unix.NLM_F_CREATE, op.Family, name)
		e.endNest(e.nest(unix.NFTA_OBJ_DATA)) // required for a counter; may be empty for one that starts at zero
		e.end()
	case ruleset.Delete:
		e.beginCounter(unix.NFT_MSG_DELOBJ, 0, op.Family, name)
		e.end()
	case ruleset.Flush:
		return errNoSuchOperation
	}
	return nil
}

// beginCounter starts a message about a counter.
func (m *messages) beginCounter(kind, flags uint16, family model.Family, name string) {
	m.beginNFT(kind, flags, nfproto(family))
	m.text(unix.NFTA_OBJ_TABLE, m.targetTable())
	m.text(unix.NFTA_OBJ_NAME, name)
	m.number(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
}

// Packets returns how many packets a counter in our table of a family has counted, and whether the counter exists.
func (r *Reader) Packets(ctx context.Context, family model.Family, counter string) (n uint64, exists bool, err error) {
	err = r.query(ctx, func(m *messages) {
		m.beginCounter(unix.NFT_MSG_GETOBJ, unix.NLM_F_ACK, family, counter)
		m.end()
	}, func(m message) error {
		_, body := m.family()
		n, exists = uint64Of(attribute(body, unix.NFTA_OBJ_DATA), unix.NFTA_COUNTER_PACKETS), true
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, false, fmt.Errorf("read counter %s %s: %w", tableText(family), counter, err)
	}
	return n, exists, nil
}
