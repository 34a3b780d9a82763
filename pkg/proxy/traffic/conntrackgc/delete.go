//go:build linux

package conntrackgc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// memoizeIsLocal returns an isLocal that queries each address once, so that a scan costs at most one query per address
// in the table. After an error it makes no further queries: each might take as long.
func memoizeIsLocal(isLocal selection.IsLocal) selection.IsLocal {
	results := map[netip.Addr]bool{}
	var firstErr error
	return func(addr netip.Addr) (bool, error) {
		result, known := results[addr]
		if known || firstErr != nil {
			return result, firstErr
		}
		result, firstErr = isLocal(addr)
		results[addr] = result
		return result, firstErr
	}
}

// deleteAll deletes the entries that are still stale immediately before their deletion, and calls onDeleted for those
// that existed. It skips an entry that the kernel keeps because a flowtable forwards the flow (EBUSY, IPS_OFFLOAD). It
// stops at any other error.
func deleteAll(
	ctx context.Context, table conntrack.Table, entries []*conntrack.Entry,
	isStillStale func(*conntrack.Entry) (bool, error), onDeleted func(*conntrack.Entry),
) error {
	var busy []error
	for i, e := range entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("delete the last %d of %d stale entries: %w", len(entries)-i, len(entries), err)
		}
		isStale, err := isStillStale(e)
		isDeleted := false
		if isStale && err == nil {
			isDeleted, err = table.Delete(e)
		}
		switch {
		case errors.Is(err, unix.EBUSY):
			busy = append(busy, fmt.Errorf("delete entry %s: %w", e, err))
		case err != nil:
			return errors.Join(append(busy, fmt.Errorf("delete entry %s: %w", e, err))...)
		case isDeleted:
			onDeleted(e)
		}
	}
	if len(busy) > 1 {
		return fmt.Errorf("%w; and %d more", busy[0], len(busy)-1)
	}
	return errors.Join(busy...)
}
