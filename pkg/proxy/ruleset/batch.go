package ruleset

import (
	"iter"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Batch is a list of operations that the kernel applies completely or not at all.
type Batch struct {
	Ops []Op
	// Weight is the approximate number of elements of a large batch, for which its encoder allocates memory; zero if
	// unknown.
	Weight int
}

// Verb is the kind of an operation.
type Verb uint8

// The verbs. Each behaves as nftables does:
//
//   - Add of a table, set, chain, counter or identical element that already exists does nothing; Add of an element with
//     another value is an error (EEXIST). Add of a chain does not touch its rules, if it has any; Add of rules appends.
//     Add of an existing counter keeps its count.
//   - Delete and Flush of a missing object are errors (ENOENT); Delete of a chain, set or counter in use is one too
//     (EBUSY).
//   - Flush of a set removes its elements, of a chain its rules.
const (
	Add Verb = iota
	Delete
	Flush
)

// Op is one operation on one kind of object.
type Op struct {
	Verb   Verb
	Family model.Family
	Object Object
	// Table is the name of the table, or of the table that contains the object; empty means TableName.
	Table string
}

// Object is the target of an operation.
type Object interface {
	isObject()
}

// The kinds of objects.
type (
	// TableObject is the table of the family.
	TableObject struct{}
	// CounterObject is a named counter. It has no Flush, and keeps counting when the rules that refer to it are rewritten.
	CounterObject struct{ Name string }
	// SetObject is a set or map; Delete and Flush read only its name.
	SetObject struct{ Set Set }
	// ChainObject is a chain; Add creates it without its rules, Delete and Flush read only its name.
	ChainObject struct{ Chain Chain }
	// RulesObject is all rules of a chain, which Add appends. It has no other verb.
	RulesObject struct{ Chain Chain }
	// ElementsObject is a sequence of elements of one set. It has no Flush: flush the set.
	//
	// The sequence may be iterated more than once and must yield the same elements each time.
	ElementsObject struct {
		Set      Set
		Elements iter.Seq[Element]
		// lastCount is the number of elements of the latest iteration, negative before the first, so that
		// counting a large batch that was encoded does not iterate again.
		lastCount *int
	}
)

func (TableObject) isObject()    {}
func (CounterObject) isObject()  {}
func (SetObject) isObject()      {}
func (ChainObject) isObject()    {}
func (RulesObject) isObject()    {}
func (ElementsObject) isObject() {}

// Count returns how many elements the batch adds to a family's table, or deletes from it one by one.
func (b Batch) Count(family model.Family, verb Verb) int {
	count := 0
	for _, op := range b.Ops {
		if object, ok := op.Object.(ElementsObject); ok && op.Family == family && op.Verb == verb {
			count += object.count()
		}
	}
	return count
}

func (o ElementsObject) count() int {
	if o.lastCount != nil && *o.lastCount >= 0 {
		return *o.lastCount
	}
	count := 0
	for range o.Elements {
		count++
	}
	return count
}

// countedElements returns elements that record their number when they are iterated.
func countedElements(set Set, elements iter.Seq[Element]) ElementsObject {
	lastCount := -1
	return ElementsObject{Set: set, lastCount: &lastCount, Elements: func(yield func(Element) bool) {
		lastCount = 0
		elements(func(element Element) bool {
			lastCount++
			return yield(element)
		})
	}}
}

func (b *Batch) add(verb Verb, family model.Family, object Object) {
	b.Ops = append(b.Ops, Op{Verb: verb, Family: family, Object: object})
}
