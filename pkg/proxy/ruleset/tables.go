package ruleset

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Errors of Tables.Apply, like the kernel's ENOENT, EEXIST and EBUSY. As with those, the first two are fs.ErrNotExist
// and fs.ErrExist.
var (
	ErrNotExist error = tablesError{"no such object", fs.ErrNotExist}
	ErrExist    error = tablesError{"exists with another value", fs.ErrExist}
	ErrBusy           = errors.New("in use")
)

// tablesError is our own text for an error of the standard library.
type tablesError struct {
	text  string
	cause error
}

// Error returns the text.
func (e tablesError) Error() string { return e.text }

// Unwrap returns the error of the standard library.
func (e tablesError) Unwrap() error { return e.cause }

// Tables are our tables in memory: what the kernel would hold after the same batches, as far as this package needs it.
// Print writes text that nft loads.
//
// The zero value is empty.
type Tables struct {
	tables map[model.Family]*table
}

type table struct {
	counters map[string]bool
	sets     map[string]*filledSet
	chains   map[string]*Chain
}

func newTable() *table {
	return &table{counters: map[string]bool{}, sets: map[string]*filledSet{}, chains: map[string]*Chain{}}
}

type filledSet struct {
	Set
	elements map[Tuple]Element
	shared   bool // elements is shared with the tables before the batch
}

// Apply applies a batch completely or not at all. The error is a *RejectedError with the first operation that failed.
func (t *Tables) Apply(batch Batch) error {
	next := t.clone()
	for i, op := range batch.Ops {
		if rejected, err := next.apply(op); err != nil {
			err = fmt.Errorf("operation %d of %d: %w", i+1, len(batch.Ops), err)
			return &RejectedError{Rejections: []Rejection{{Op: op, Element: rejected, Err: err}}}
		}
	}
	t.tables = next.tables
	return nil
}

// Objects returns the content of a family's table, sorted.
func (t *Tables) Objects(family model.Family) Objects {
	table, ok := t.tables[family]
	if !ok {
		return Objects{}
	}
	objects := Objects{
		Table:    true,
		Chains:   slices.Sorted(maps.Keys(table.chains)),
		Sets:     slices.Sorted(maps.Keys(table.sets)),
		Counters: slices.Sorted(maps.Keys(table.counters)),
	}
	for name, set := range table.sets {
		if _, restored := RestoredSet(name); restored {
			objects.Add(name, set.sorted())
		}
	}
	return objects
}

// Elements returns the elements of a set, sorted by key.
func (t *Tables) Elements(family model.Family, set Set) ([]Element, error) {
	filled, err := t.set(family, set.Name)
	if err != nil {
		return nil, err
	}
	return filled.sorted(), nil
}

// clone returns a copy of the tables for a batch to change. Elements are shared until the batch changes their set.
func (t *Tables) clone() *Tables {
	next := &Tables{tables: map[model.Family]*table{}}
	for family, original := range t.tables {
		copied := newTable()
		maps.Copy(copied.counters, original.counters)
		for name, set := range original.sets {
			copied.sets[name] = &filledSet{Set: set.Set, elements: set.elements, shared: true}
		}
		for name, chain := range original.chains {
			copiedChain := *chain
			copiedChain.Rules = slices.Clone(chain.Rules)
			copied.chains[name] = &copiedChain
		}
		next.tables[family] = copied
	}
	return next
}

// detach gives the set its own copy of the elements.
func (s *filledSet) detach() {
	if s.shared {
		s.elements, s.shared = maps.Clone(s.elements), false
	}
}

// apply returns the rejected element with the error, if the error is about one.
func (t *Tables) apply(op Op) (rejected *Element, err error) {
	switch object := op.Object.(type) {
	case TableObject:
		return nil, t.applyTable(op)
	case CounterObject:
		return nil, t.applyCounter(op, object.Name)
	case SetObject:
		return nil, t.applySet(op, object.Set)
	case ChainObject:
		return nil, t.applyChain(op, object.Chain)
	case RulesObject:
		return nil, t.addRules(op, object.Chain)
	case ElementsObject:
		return t.applyElements(op, object)
	}
	panic(fmt.Sprintf("ruleset: object %T cannot be applied", op.Object))
}

func (t *Tables) applyTable(op Op) error {
	_, exists := t.tables[op.Family]
	switch {
	case op.Verb == Add && !exists:
		t.tables[op.Family] = newTable()
	case op.Verb == Delete && !exists:
		return fmt.Errorf("delete table %s %s: %w", Keyword(op.Family), TableName, ErrNotExist)
	case op.Verb == Delete:
		delete(t.tables, op.Family)
	}
	return nil
}

func (t *Tables) applyCounter(op Op, name string) error {
	table, err := t.table(op.Family)
	switch {
	case err != nil:
		return err
	case op.Verb == Add:
		table.counters[name] = true
	case !table.counters[name]:
		return fmt.Errorf("counter %s: %w", name, ErrNotExist)
	case table.usesCounter(name):
		return fmt.Errorf("delete counter %s: %w", name, ErrBusy)
	default:
		delete(table.counters, name)
	}
	return nil
}

func (t *Tables) applySet(op Op, set Set) error {
	table, err := t.table(op.Family)
	if err != nil {
		return err
	}
	filled, exists := table.sets[set.Name]
	switch {
	case op.Verb == Add && !exists:
		table.sets[set.Name] = &filledSet{Set: set, elements: map[Tuple]Element{}}
	case op.Verb == Add:
		if !filled.isDeclaredLike(set) {
			return fmt.Errorf("add set %s: %w", set.Name, ErrExist)
		}
	case !exists:
		return fmt.Errorf("set %s: %w", set.Name, ErrNotExist)
	case op.Verb == Flush:
		filled.elements, filled.shared = map[Tuple]Element{}, false
	case table.usesSet(set.Name):
		return fmt.Errorf("delete set %s: %w", set.Name, ErrBusy)
	default:
		delete(table.sets, set.Name)
	}
	return nil
}

func (t *Tables) applyChain(op Op, chain Chain) error {
	table, err := t.table(op.Family)
	if err != nil {
		return err
	}
	existing, exists := table.chains[chain.Name]
	switch {
	case op.Verb == Add && !exists:
		chain.Rules = nil
		table.chains[chain.Name] = &chain
	case op.Verb == Add:
		if existing.Hook != chain.Hook || existing.Priority != chain.Priority {
			return fmt.Errorf("add chain %s: %w", chain.Name, ErrExist)
		}
	case !exists:
		return fmt.Errorf("chain %s: %w", chain.Name, ErrNotExist)
	case op.Verb == Flush:
		existing.Rules = nil
	case len(existing.Rules) > 0 || table.usesChain(chain.Name):
		return fmt.Errorf("delete chain %s: %w", chain.Name, ErrBusy)
	default:
		delete(table.chains, chain.Name)
	}
	return nil
}

func (t *Tables) addRules(op Op, chain Chain) error {
	table, err := t.table(op.Family)
	if err != nil {
		return err
	}
	existing, exists := table.chains[chain.Name]
	if !exists {
		return fmt.Errorf("add rule to chain %s: %w", chain.Name, ErrNotExist)
	}
	for _, rule := range chain.Rules {
		for _, statement := range rule {
			if err := table.checkReference(statement); err != nil {
				return fmt.Errorf("add rule to chain %s: %w", chain.Name, err)
			}
		}
	}
	existing.Rules = append(existing.Rules, chain.Rules...)
	return nil
}

func (t *Tables) applyElements(op Op, object ElementsObject) (rejected *Element, err error) {
	filled, err := t.set(op.Family, object.Set.Name)
	if err != nil {
		return nil, err
	}
	filled.detach()
	for element := range object.Elements {
		existing, exists := filled.elements[element.Key]
		switch {
		case op.Verb == Delete && !exists:
			return &element, fmt.Errorf("delete element %s of %s: %w", element.Key.Text(filled.Key), filled.Name, ErrNotExist)
		case op.Verb == Delete:
			delete(filled.elements, element.Key)
		case exists && existing.bare() != element.bare():
			return &element, fmt.Errorf("add element %s to %s: %w", elementText(filled.Set, element), filled.Name, ErrExist)
		case !exists:
			if err := t.tables[op.Family].checkChain(element.Verdict.target()); err != nil {
				return &element, fmt.Errorf("add element %s to %s: %w", elementText(filled.Set, element), filled.Name, err)
			}
			filled.elements[element.Key] = element
		}
	}
	return nil, nil
}

func (t *Tables) table(family model.Family) (*table, error) {
	table, ok := t.tables[family]
	if !ok {
		return nil, fmt.Errorf("table %s %s: %w", Keyword(family), TableName, ErrNotExist)
	}
	return table, nil
}

func (t *Tables) set(family model.Family, name string) (*filledSet, error) {
	table, err := t.table(family)
	if err != nil {
		return nil, err
	}
	filled, ok := table.sets[name]
	if !ok {
		return nil, fmt.Errorf("set %s: %w", name, ErrNotExist)
	}
	return filled, nil
}
