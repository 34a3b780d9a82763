//go:build linux

package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Table is our table of a family as the kernel has it.
type Table struct {
	// Found are its objects, with the contents of all sets.
	Found ruleset.Objects
	// Read is how many elements were read.
	Read int

	family model.Family
	rules  map[string][][]byte // by chain
}

// Table reads all of our table of a family, except for what packets add to it.
func (r *Reader) Table(ctx context.Context, family model.Family) (*Table, error) {
	found, err := r.Objects(ctx, family)
	if err != nil || !found.Table {
		return &Table{family: family}, err
	}
	t := &Table{Found: found, family: family}
	for _, name := range found.Sets {
		t.Found.Add(name, nil)
		set, known := ruleset.SetNamed(name)
		if !known {
			continue
		}
		elements, err := r.Elements(ctx, family, set)
		if errors.Is(err, errUnreadable) || errors.Is(err, unix.ENOENT) {
			delete(t.Found.Contents, name) // it is a foreign set of the same name, or was deleted meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		t.Found.Add(name, elements)
		t.Read += len(elements)
	}
	t.rules, err = r.rules(ctx, family)
	return t, err
}

// Differences compares the table with the desired one: sets, elements, chains and rules.
func (t *Table) Differences(wanted *ruleset.Tables) ([]ruleset.Difference, error) {
	differences := wanted.Differences(t.family, t.Found)
	if !t.Found.Table {
		return differences, nil
	}
	for _, chain := range wanted.Chains(t.family) {
		text, err := compareRules(t.family, chain, t.rules[chain.Name])
		if err != nil {
			return nil, err
		}
		if text != "" {
			differences = append(differences, ruleset.Difference{
				Table: tableText(t.family), In: "chain " + chain.Name, What: text, Kind: ruleset.Changed,
			})
		}
	}
	return differences, nil
}

// rules returns the expressions of the rules in our table of a family, by chain, as the kernel dumps them.
func (r *Reader) rules(ctx context.Context, family model.Family) (map[string][][]byte, error) {
	rules, err := retried(func() (map[string][][]byte, error) {
		byChain := map[string][][]byte{}
		err := r.query(ctx, func(m *messages) {
			m.table(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, number(family))
			m.text(unix.NFTA_RULE_TABLE, ruleset.TableName)
			m.end()
		}, func(m message) error {
			dumped, body := m.family()
			if dumped == number(family) && textOf(body, unix.NFTA_RULE_TABLE) == ruleset.TableName {
				chain := textOf(body, unix.NFTA_RULE_CHAIN)
				byChain[chain] = append(byChain[chain], bytes.Clone(attribute(body, unix.NFTA_RULE_EXPRESSIONS)))
			}
			return nil
		})
		return byChain, err
	})
	if err != nil {
		return nil, fmt.Errorf("read rules of table %s: %w", tableText(family), err)
	}
	return rules, nil
}

// compareRules describes the first difference between the rules of a chain; empty if there is none.
func compareRules(family model.Family, chain ruleset.Chain, held [][]byte) (string, error) {
	if len(held) != len(chain.Rules) {
		return fmt.Sprintf("the number of rules, %d instead of %d,", len(held), len(chain.Rules)), nil
	}
	for i, rule := range chain.Rules {
		var wanted messages
		if err := wanted.expressions(family, rule); err != nil {
			return "", fmt.Errorf("rule %d of chain %s: %w", i+1, chain.Name, err)
		}
		if !equalExpr(wanted.b, held[i]) {
			return fmt.Sprintf("rule %d", i+1), nil
		}
	}
	return "", nil
}

// equalExpr reports whether two lists have the same attributes in the same order, except for those that the kernel
// adds, and those of ours that it keeps only during a transaction.
func equalExpr(ours, theirs []byte) bool {
	type one struct {
		kind  uint16
		value []byte
	}
	var rest []one
	for kind, value := range attributes(theirs) {
		rest = append(rest, one{kind, value})
	}
	isList := len(rest) > 0 && rest[0].kind == unix.NFTA_LIST_ELEM && attribute(rest[0].value, unix.NFTA_EXPR_NAME) != nil
	at, count := 0, 0
	for kind, value := range attributes(ours) {
		count++
		if !isList {
			at = slices.IndexFunc(rest, func(there one) bool { return there.kind == kind })
		}
		switch {
		case at < 0 && isZero(value): // the number of a set in a transaction, but there is no transaction
			continue
		case at < 0, at == len(rest):
			return false
		}
		there := rest[at].value
		isEqual := bytes.Equal(value, there) || isSameRegister(value, there) || isNested(value) && isNested(there) && equalExpr(value, there)
		if !isEqual && !bytes.Equal(append(bytes.Clone(value), 0), there) { // a text, which the kernel ends with a zero
			return false
		}
		if isList {
			at++
		}
	}
	return !isList || count == len(rest)
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// isSameRegister reports whether two numbers may be the same register: the kernel dumps every fourth 32-bit register as
// the 128-bit register that starts there (nft_dump_register).
func isSameRegister(ours, theirs []byte) bool {
	if len(ours) != 4 || len(theirs) != 4 {
		return false
	}
	small, large := binary.BigEndian.Uint32(ours), binary.BigEndian.Uint32(theirs)
	return small >= unix.NFT_REG32_00 && small <= unix.NFT_REG32_15 && (small-unix.NFT_REG32_00)%4 == 0 &&
		large == unix.NFT_REG_1+(small-unix.NFT_REG32_00)/4
}

// isNested reports whether a value consists of attributes alone.
func isNested(b []byte) bool {
	size := 0
	for _, value := range attributes(b) {
		size += align(attributeSize + len(value))
	}
	return size > 0 && size == align(len(b))
}
