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

// Cleanup deletes our tables, including the demand tables, and nothing else. It returns the families that had one. A
// table that belongs to a living process stays, and the error names the owner.
func Cleanup(ctx context.Context) (deleted []model.Family, err error) {
	c, err := Dial(Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for range readAttempts {
		deleted, err = c.deleteTables(ctx)
		if !errors.Is(err, unix.ENOENT) { // another process was faster: read again
			break
		}
	}
	if owned, ok := errors.AsType[*TableOwnedError](err); ok {
		return nil, fmt.Errorf("delete table %s: stop its owner first: %w", tableText(owned.Family), err)
	}
	return deleted, err
}

func (c *Conn) deleteTables(ctx context.Context) ([]model.Family, error) {
	var present []model.Family
	var batch ruleset.Batch
	for _, family := range model.Families {
		state, err := c.table(ctx, family)
		if err != nil {
			return nil, err
		}
		isPresent := state.exists
		if state.exists {
			batch.Ops = append(batch.Ops, ruleset.Op{Verb: ruleset.Delete, Family: family, Object: ruleset.TableObject{}})
		}
		for _, name := range ruleset.DemandTableNames {
			exists, err := c.HasDemandTable(ctx, family, name)
			if err != nil {
				return nil, err
			}
			if exists {
				isPresent = true
				batch.Ops = append(batch.Ops, ruleset.DeleteDemandTable(family, name).Ops...)
			}
		}
		if isPresent {
			present = append(present, family)
		}
	}
	if err := c.Commit(ctx, batch); err != nil {
		return nil, err
	}
	return present, nil
}
