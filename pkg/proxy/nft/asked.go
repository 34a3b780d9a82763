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

// ErrNoTable says that a table is not there.
var ErrNoTable = errors.New("the table is not there")

// HasAsked reports whether a family has the table that counts what is asked, by one of ruleset.AskedTableNames.
func (r *Reader) HasAsked(ctx context.Context, family model.Family, name string) (bool, error) {
	state, err := r.tableNamed(ctx, family, name)
	return state.exists, err
}

// Asked calls each with every frontend that is counted in a family, and with how often it was asked since its element
// was added. A frontend may come twice, or be missing, if elements change meanwhile.
func (r *Reader) Asked(ctx context.Context, family model.Family, each func(frontend model.Frontend, count uint64)) error {
	for _, set := range []ruleset.Set{ruleset.Asked, ruleset.AskedNodePorts} {
		_, err := retried(func() (struct{}, error) { return struct{}{}, r.asked(ctx, family, set, each) })
		switch {
		case errors.Is(err, unix.ENOENT):
			return fmt.Errorf("reading %s: %w", setText(askedText(family), set), ErrNoTable)
		case err != nil:
			return fmt.Errorf("reading %s: %w", setText(askedText(family), set), err)
		}
	}
	return nil
}

func askedText(family model.Family) string {
	return ruleset.Keyword(family) + " " + ruleset.AskedTableName
}

func (r *Reader) asked(
	ctx context.Context, family model.Family, set ruleset.Set, each func(frontend model.Frontend, count uint64),
) error {
	return r.each(ctx, family, ruleset.AskedTableName, set, func(element ruleset.Element, attributes []byte) {
		counter := attribute(attribute(attributes, unix.NFTA_SET_ELEM_EXPR), unix.NFTA_EXPR_DATA)
		each(ruleset.FrontendOf(family, element), longOf(counter, unix.NFTA_COUNTER_PACKETS))
	})
}
