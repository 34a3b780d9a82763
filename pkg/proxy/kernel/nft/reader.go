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
	// Objects are its objects, with the contents of all sets.
	Objects ruleset.Objects
	// ElementsRead is how many elements were read.
	ElementsRead int

	family model.Family
	rules  map[string][][]byte // by chain
}

// Table reads all of our table of a family, except for what packets add to it.
func (r *Reader) Table(ctx context.Context, family model.Family) (*Table, error) {
	found, err := r.Objects(ctx, family)
	if err != nil || !found.Table {
		return &Table{family: family}, err
	}
	t := &Table{Objects: found, family: family}
	for _, name := range found.Sets {
		t.Objects.Add(name, nil)
		set, known := ruleset.SetByName(name)
		if !known {
			continue
		}
		elements, err := r.Elements(ctx, family, set)
		if errors.Is(err, errUnreadable) || errors.Is(err, unix.ENOENT) {
			delete(t.Objects.Contents, name) // it is a foreign set of the same name, or was deleted meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		t.Objects.Add(name, elements)
		t.ElementsRead += len(elements)
	}
	t.rules, err = r.rules(ctx, family)
	return t, err
}

// Differences compares the table with the desired one: sets, elements, chains and rules.
func (t *Table) Differences(desired *ruleset.Tables) ([]ruleset.Difference, error) {
	differences := desired.Differences(t.family, t.Objects)
	if !t.Objects.Table {
		return differences, nil
	}
	for _, chain := range desired.Chains(t.family) {
		text, err := compareRules(t.family, chain, t.rules[chain.Name])
		if err != nil {
			return nil, err
		}
		if text != "" {
			differences = append(differences, ruleset.Difference{
				Table: tableText(t.family), Object: "chain " + chain.Name, Detail: text, Kind: ruleset.Changed,
			})
		}
	}
	return differences, nil
}

// rules returns the expressions of the rules in our table of a family, by chain, as the kernel dumps them.
func (r *Reader) rules(ctx context.Context, family model.Family) (map[string][][]byte, error) {
	rules, err := retry(func() (map[string][][]byte, error) {
		byChain := map[string][][]byte{}
		err := r.query(ctx, func(m *messages) {
			m.beginNFT(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, nfproto(family))
			m.text(unix.NFTA_RULE_TABLE, ruleset.TableName)
			m.end()
		}, func(m message) error {
			dumpedFamily, body := m.family()
			if dumpedFamily == nfproto(family) && textOf(body, unix.NFTA_RULE_TABLE) == ruleset.TableName {
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
func compareRules(family model.Family, chain ruleset.Chain, actual [][]byte) (string, error) {
	if len(actual) != len(chain.Rules) {
		return fmt.Sprintf("the number of rules, %d instead of %d,", len(actual), len(chain.Rules)), nil
	}
	for i, rule := range chain.Rules {
		var desired messages
		if err := desired.expressions(family, rule); err != nil {
			return "", fmt.Errorf("rule %d of chain %s: %w", i+1, chain.Name, err)
		}
		if !equalExpr(desired.b, actual[i]) {
			return fmt.Sprintf("rule %d", i+1), nil
		}
	}
	return "", nil
}

// equalExpr reports whether two lists have the same attributes in the same order, except for those that the kernel
// adds, and those of ours that it keeps only during a transaction.
func equalExpr(desired, actual []byte) bool {
	type one struct {
		kind  uint16
		value []byte
	}
	var rest []one
	for kind, value := range attributes(actual) {
		rest = append(rest, one{kind, value})
	}
	isList := len(rest) > 0 && rest[0].kind == unix.NFTA_LIST_ELEM && attribute(rest[0].value, unix.NFTA_EXPR_NAME) != nil
	index, count := 0, 0
	for kind, value := range attributes(desired) {
		count++
		if !isList {
			index = slices.IndexFunc(rest, func(other one) bool { return other.kind == kind })
		}
		switch {
		case index < 0 && isZero(value): // the ID of a set, which the kernel keeps only during a transaction
			continue
		case index < 0, index == len(rest):
			return false
		}
		other := rest[index].value
		isEqual := bytes.Equal(value, other) || isSameRegister(value, other) || isNested(value) && isNested(other) && equalExpr(value, other)
		if !isEqual && !bytes.Equal(append(bytes.Clone(value), 0), other) { // a string, which the kernel ends with a zero
			return false
		}
		if isList {
			index++
		}
	}
	return !isList || count == len(rest)
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// isSameRegister reports whether two numbers may be the same register: the kernel dumps every fourth 32-bit register as
// the 128-bit register that starts there (nft_dump_register).
func isSameRegister(desired, actual []byte) bool {
	if len(desired) != 4 || len(actual) != 4 {
		return false
	}
	small, large := binary.BigEndian.Uint32(desired), binary.BigEndian.Uint32(actual)
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
