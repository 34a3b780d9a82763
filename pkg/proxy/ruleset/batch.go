package ruleset

import (
	"iter"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Batch is a list of operations that the kernel takes whole or not at all.
type Batch struct {
	Ops []Op
	// Weight is about how many elements a large batch has, so that its encoder can make room for them; zero if unknown.
	Weight int
}

// Verb is what an operation does with its object.
type Verb uint8

// The verbs. Each behaves as nftables does:
//
//   - Add of a table, set, chain, counter or identical element that is there already does nothing; Add of an element with
//     another value is an error (EEXIST). Add of a chain does not touch its rules, if it has any; Add of rules appends.
//     Add of a counter leaves what it has counted.
//   - Delete and Flush of what is not there are errors (ENOENT); Delete of a chain, set or counter in use is one too
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
	// Table names the object itself if it is a table, else the table that it is in; empty: TableName.
	Table string
}

// Object is what an operation works on.
type Object interface {
	isObject()
}

// The objects.
type (
	// TableObject is the table of the family.
	TableObject struct{}
	// CounterObject is a named counter. It has no Flush, and goes on counting when the rules that name it are written anew.
	CounterObject struct{ Name string }
	// SetObject is a set or map; Delete and Flush read only its name.
	SetObject struct{ Set Set }
	// ChainObject is a chain; Add makes it without its rules, Delete and Flush read only its name.
	ChainObject struct{ Chain Chain }
	// RulesObject is all rules of a chain, which Add appends. It has no other verb.
	RulesObject struct{ Chain Chain }
	// ElementsObject is a number of elements of one set. It has no Flush: flush the set.
	//
	// The sequence may be walked more than once and gives the same elements each time.
	ElementsObject struct {
		Set      Set
		Elements iter.Seq[Element]
		// walked is how many the newest walk gave, negative before the first, so that counting a large batch that was
		// encoded does not walk it again.
		walked *int
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
	if o.walked != nil && *o.walked >= 0 {
		return *o.walked
	}
	count := 0
	for range o.Elements {
		count++
	}
	return count
}

// countedElements are elements that remember how many they are.
func countedElements(set Set, elements iter.Seq[Element]) ElementsObject {
	walked := -1
	return ElementsObject{Set: set, walked: &walked, Elements: func(yield func(Element) bool) {
		walked = 0
		elements(func(element Element) bool {
			walked++
			return yield(element)
		})
	}}
}

func (b *Batch) add(verb Verb, family model.Family, object Object) {
	b.Ops = append(b.Ops, Op{Verb: verb, Family: family, Object: object})
}
