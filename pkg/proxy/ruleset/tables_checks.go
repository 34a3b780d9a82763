package ruleset

import (
	"fmt"
	"slices"
)

// checkReference checks that the object that a statement refers to exists.
func (t *table) checkReference(statement Statement) error {
	ref := referenceOf(statement)
	if _, exists := t.sets[ref.set]; !exists && ref.set != "" {
		return fmt.Errorf("set %s: %w", ref.set, ErrNotExist)
	}
	if !t.counters[ref.counter] && ref.counter != "" {
		return fmt.Errorf("counter %s: %w", ref.counter, ErrNotExist)
	}
	return t.checkChain(ref.chain)
}

// checkChain checks that the chain exists to which a statement or an element leads, if there is one.
func (t *table) checkChain(chain string) error {
	if _, exists := t.chains[chain]; !exists && chain != "" {
		return fmt.Errorf("chain %s: %w", chain, ErrNotExist)
	}
	return nil
}

// usesSet reports whether a rule refers to the set.
func (t *table) usesSet(name string) bool {
	return t.anyStatement(func(statement Statement) bool { return referenceOf(statement).set == name })
}

// usesCounter reports whether a rule increments the counter.
func (t *table) usesCounter(name string) bool {
	return t.anyStatement(func(statement Statement) bool { return referenceOf(statement).counter == name })
}

// usesChain reports whether a rule or an element leads to the chain.
func (t *table) usesChain(name string) bool {
	for _, filled := range t.sets {
		if !filled.MapsVerdicts() {
			continue
		}
		for _, element := range filled.elements {
			if element.Verdict.target() == name {
				return true
			}
		}
	}
	return t.anyStatement(func(statement Statement) bool { return referenceOf(statement).chain == name })
}

func (t *table) anyStatement(matches func(Statement) bool) bool {
	for _, chain := range t.chains {
		for _, rule := range chain.Rules {
			if slices.ContainsFunc(rule, matches) {
				return true
			}
		}
	}
	return false
}

// isDeclaredLike reports whether a set is declared with the same types and flags.
func (s Set) isDeclaredLike(other Set) bool {
	return slices.Equal(s.Key, other.Key) && slices.Equal(s.Value, other.Value) && s.Dynamic == other.Dynamic
}
