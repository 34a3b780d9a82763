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

// ErrNoTable means that a table does not exist.
var ErrNoTable = errors.New("table does not exist")

// HasDemandTable reports whether a family has a demand table of the given name, one of ruleset.DemandTableNames.
func (r *Reader) HasDemandTable(ctx context.Context, family model.Family, name string) (bool, error) {
	state, err := r.queryTable(ctx, family, name)
	return state.exists, err
}

// DemandCounts calls each with every frontend that is counted in a family, and with its number of new connections since
// its element was added. If elements change during the dump, a frontend may be passed twice or be missing.
func (r *Reader) DemandCounts(ctx context.Context, family model.Family, each func(frontend model.Frontend, count uint64)) error {
	for _, set := range []ruleset.Set{ruleset.DemandSet, ruleset.DemandNodePortSet} {
		_, err := retry(func() (struct{}, error) { return struct{}{}, r.demandElements(ctx, family, set, each) })
		switch {
		case errors.Is(err, unix.ENOENT):
			return fmt.Errorf("read %s: %w", setText(demandTableName(family), set), ErrNoTable)
		case err != nil:
			return fmt.Errorf("read %s: %w", setText(demandTableName(family), set), err)
		}
	}
	return nil
}

func demandTableName(family model.Family) string {
	return ruleset.Keyword(family) + " " + ruleset.DemandTableName
}

func (r *Reader) demandElements(
	ctx context.Context, family model.Family, set ruleset.Set, each func(frontend model.Frontend, count uint64),
) error {
	return r.each(ctx, family, ruleset.DemandTableName, set, func(element ruleset.Element, attributes []byte) {
		counter := attribute(attribute(attributes, unix.NFTA_SET_ELEM_EXPR), unix.NFTA_EXPR_DATA)
		each(ruleset.FrontendOf(family, element), uint64Of(counter, unix.NFTA_COUNTER_PACKETS))
	})
}
