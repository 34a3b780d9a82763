package ruleset

import (
	"fmt"
	"slices"
)

// setOf returns the set or map that a statement looks into.
func setOf(statement Statement) (Set, bool) {
	switch s := statement.(type) {
	case InSet:
		return s.Set, true
	case VerdictOf:
		return s.Map, true
	case SetPriority:
		return s.Map, true
	case DNAT:
		return s.Map, true
	case Update:
		return s.Map, true
	}
	return Set{}, false
}

// resolves checks that the set and the chain that a statement names are there.
func (t *table) resolves(statement Statement) error {
	if set, ok := setOf(statement); ok {
		if _, exists := t.sets[set.Name]; !exists {
			return fmt.Errorf("set %s: %w", set.Name, ErrNotExist)
		}
	}
	if do, ok := statement.(Do); ok {
		return t.leads(do.Verdict)
	}
	return nil
}

// leads checks that the chain that a verdict names is there.
func (t *table) leads(verdict Verdict) error {
	if verdict.Kind != Jump && verdict.Kind != Goto {
		return nil
	}
	if _, exists := t.chains[verdict.Chain]; !exists {
		return fmt.Errorf("chain %s: %w", verdict.Chain, ErrNotExist)
	}
	return nil
}

// usesSet reports whether a rule looks into the set.
func (t *table) usesSet(name string) bool {
	return t.anyStatement(func(statement Statement) bool {
		set, ok := setOf(statement)
		return ok && set.Name == name
	})
}

// usesChain reports whether a rule or an element leads to the chain.
func (t *table) usesChain(name string) bool {
	for _, filled := range t.sets {
		for _, element := range filled.elements {
			if element.Verdict.Chain == name {
				return true
			}
		}
	}
	return t.anyStatement(func(statement Statement) bool {
		do, ok := statement.(Do)
		return ok && do.Verdict.Chain == name
	})
}

func (t *table) anyStatement(is func(Statement) bool) bool {
	for _, chain := range t.chains {
		for _, rule := range chain.Rules {
			if slices.ContainsFunc(rule, is) {
				return true
			}
		}
	}
	return false
}
