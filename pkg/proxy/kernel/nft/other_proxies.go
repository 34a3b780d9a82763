//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/competing"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// OtherProxies returns the other service proxies that translate connections in this network namespace.
//
// It queries a handful of tables and chains by name instead of dumping them: a dump has all chains of all tables, and
// kube-proxy creates several for each Service.
func (r *Reader) OtherProxies(ctx context.Context) ([]competing.Conflict, error) {
	tables := map[model.Family]competing.Tables{}
	for _, family := range model.Families {
		familyTables, err := r.tablesOfProxies(ctx, family)
		if err != nil {
			return nil, fmt.Errorf("detect other service proxies: %w", err)
		}
		tables[family] = familyTables
	}
	return competing.Find(tables), nil
}

// HasChain reports whether a table has a chain that is in use: rules lead to it, or it has rules.
func (r *Reader) HasChain(ctx context.Context, family model.Family, table, name string) (bool, error) {
	chain, err := r.chain(ctx, family, table, name)
	return chain.Uses > 0, err
}

func (r *Reader) tablesOfProxies(ctx context.Context, family model.Family) (competing.Tables, error) {
	state, err := r.table(ctx, family)
	if err != nil {
		return competing.Tables{}, err
	}
	tables := competing.Tables{OwnHandle: state.handle}
	for i := range competing.Programs {
		observed, err := r.observeProgram(ctx, family, &competing.Programs[i])
		if err != nil {
			return competing.Tables{}, err
		}
		tables.Observed = append(tables.Observed, observed)
	}
	return tables, nil
}

func (r *Reader) observeProgram(ctx context.Context, family model.Family, program *competing.Program) (competing.Observed, error) {
	table, err := r.queryTable(ctx, family, program.Table)
	if err != nil || !table.exists {
		return competing.Observed{}, err
	}
	observed := competing.Observed{Handle: table.handle}
	if observed.Base, err = r.chain(ctx, family, program.Table, program.BaseChain); err != nil {
		return competing.Observed{}, err
	}
	observed.Signature, err = r.chain(ctx, family, program.Table, program.SignatureChain)
	return observed, err
}

// chain queries one chain of any table.
func (r *Reader) chain(ctx context.Context, family model.Family, table, name string) (competing.Chain, error) {
	var chain competing.Chain
	err := r.query(ctx, func(m *messages) {
		m.beginNFT(unix.NFT_MSG_GETCHAIN, unix.NLM_F_ACK, nfproto(family))
		m.text(unix.NFTA_CHAIN_TABLE, table)
		m.text(unix.NFTA_CHAIN_NAME, name)
		m.end()
	}, func(m message) error {
		_, body := m.family()
		hook := attribute(body, unix.NFTA_CHAIN_HOOK)
		hookNumber, isBase := numberOf(hook, unix.NFTA_HOOK_HOOKNUM)
		chain.Translates = isBase && hookNumber == unix.NF_INET_PRE_ROUTING && textOf(body, unix.NFTA_CHAIN_TYPE) == "nat"
		priority, _ := numberOf(hook, unix.NFTA_HOOK_PRIORITY)
		chain.Priority = int32(priority)
		chain.Uses, _ = numberOf(body, unix.NFTA_CHAIN_USE)
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return chain, fmt.Errorf("query chain %s of table %s %s: %w", name, ruleset.Keyword(family), table, err)
	}
	return chain, nil
}
