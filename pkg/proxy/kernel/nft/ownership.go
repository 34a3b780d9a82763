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

// Flags of a table that x/sys lacks. A table with the first belongs to the socket that added it; the second keeps the
// table when that socket closes (Linux 6.9).
const (
	tableOwner   uint32 = 1 << 1
	tablePersist uint32 = 1 << 2

	tableHandleAttribute = 4 // NFTA_TABLE_HANDLE
	tableOwnerAttribute  = 7 // NFTA_TABLE_OWNER, the port ID of the owner's socket
)

// desiredFlags returns the flags with which our tables are added: owner and persist together. With owner alone the
// table would vanish when we exit.
func desiredFlags(owned bool) uint32 {
	if owned {
		return tableOwner | tablePersist
	}
	return 0
}

// canOwn reports whether this kernel supports both flags. Kernels before 6.9 reject the second as unknown.
func canOwn(writer *socket) (bool, error) {
	err := probeTable(writer, model.IPv4, desiredFlags(true))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return false, nil
	}
	return false, fmt.Errorf("probe for owned tables: %w", err)
}

// tableState is the state of a table in a family.
type tableState struct {
	exists bool
	flags  uint32
	owner  uint32 // port ID; zero without an owner
	handle uint64 // in a namespace a newer table has a larger one
}

// canUpdate reports whether adding the table with the desired flags changes it to them. The kernel accepts an owner only
// for a table that lost its last one, and never changes persist.
func (s tableState) canUpdate(owned bool) bool {
	flags := s.flags &^ unix.NFT_TABLE_F_DORMANT // the kernel just clears this one
	return flags == desiredFlags(owned) || owned && flags == tablePersist
}

// table queries our table of a family.
func (r *Reader) table(ctx context.Context, family model.Family) (tableState, error) {
	return r.queryTable(ctx, family, ruleset.TableName)
}

func (r *Reader) queryTable(ctx context.Context, family model.Family, name string) (tableState, error) {
	var state tableState
	err := r.query(ctx, func(m *messages) {
		m.beginNFT(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, nfproto(family))
		m.text(unix.NFTA_TABLE_NAME, name)
		m.end()
	}, func(m message) error {
		_, body := m.family()
		state.exists = true
		state.handle = uint64Of(body, tableHandleAttribute)
		state.flags, _ = numberOf(body, unix.NFTA_TABLE_FLAGS)
		state.owner, _ = numberOf(body, tableOwnerAttribute)
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return tableState{}, fmt.Errorf("query table %s %s: %w", ruleset.Keyword(family), name, err)
	}
	return state, nil
}

// ownedByOther returns an error if a living socket other than ours is known to own the table of a family.
func (c *Conn) ownedByOther(ctx context.Context, family model.Family) error {
	if state, err := c.table(ctx, family); err == nil && state.owner != 0 && state.owner != c.writer.conn.PID() {
		return &TableOwnedError{Family: family, Port: state.owner, Process: processName(state.owner)}
	}
	return nil
}
