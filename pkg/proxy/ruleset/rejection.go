package ruleset

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// maxShownRejections is how many rejections the text of a RejectedError lists.
const maxShownRejections = 3

// RejectedError lists the operations of a batch that were rejected. No part of the batch was applied.
type RejectedError struct{ Rejections []Rejection }

// Rejection is an operation that was rejected, and the cause.
type Rejection struct {
	// Op has no object if the operation is unknown.
	Op Op
	// Element is the rejected element if the operation is on elements; nil if it is unknown.
	Element *Element
	// Err names the operation, its object and the cause.
	Err error
}

// Error lists the first few rejections.
func (e *RejectedError) Error() string {
	var texts []string
	for _, rejection := range e.Rejections[:min(len(e.Rejections), maxShownRejections)] {
		texts = append(texts, rejection.Err.Error())
	}
	text := strings.Join(texts, "; ")
	if more := len(e.Rejections) - maxShownRejections; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Unwrap returns the causes.
func (e *RejectedError) Unwrap() []error {
	causes := make([]error, len(e.Rejections))
	for i, rejection := range e.Rejections {
		causes[i] = rejection.Err
	}
	return causes
}

// Owners returns the Services of the plan that own the rejected objects, each with the first cause. complete is false
// if a rejection concerns something that no Service of the plan owns: then it cannot be attributed to a Service.
//
// The cost is one pass over what the plan's Services own in the sets concerned, however many rejections there are.
func (p *Plan) Owners(rejections []Rejection) (owners map[model.ObjectName]error, complete bool) {
	causes := map[rejectedKey]error{}
	sets := map[objectKey]bool{} // in which elements were rejected
	for _, rejection := range rejections {
		key, ok := keyOf(rejection)
		if !ok {
			return nil, false
		}
		if causes[key] == nil {
			causes[key] = rejection.Err
		}
		if rejection.Element != nil {
			sets[objectKey{key.family, key.name}] = true
		}
	}
	owners, owned := map[model.ObjectName]error{}, map[rejectedKey]bool{}
	for _, service := range p.services {
		service.eachKey(sets, p.config, func(key rejectedKey) {
			if cause := causes[key]; cause != nil {
				owned[key] = true
				owners[service.Name] = cmp.Or(owners[service.Name], cause)
			}
		})
	}
	return owners, len(owned) == len(causes)
}

// rejectedKey identifies something that a Service owns: an element of a set, a chain with its rules, or a set of its
// own.
type rejectedKey struct {
	family  model.Family
	name    string // of the set or chain; no chain has the name of a set of a Service's own
	element Tuple
}

func keyOf(rejection Rejection) (key rejectedKey, ok bool) {
	key.family = rejection.Op.Family
	switch object := rejection.Op.Object.(type) {
	case ElementsObject:
		if rejection.Element == nil {
			return key, false
		}
		key.name, key.element = object.Set.Name, rejection.Element.Key
	case ChainObject:
		key.name = object.Chain.Name
	case RulesObject:
		key.name = object.Chain.Name
	case SetObject:
		key.name = object.Set.Name
	default:
		return key, false
	}
	return key, true
}

// eachKey yields the elements of a Service in some sets, and its chains and sets.
func (s Service) eachKey(sets map[objectKey]bool, config Config, yield func(rejectedKey)) {
	for set := range sets {
		if rank := staticRank(set.name); rank >= 0 {
			s.each(set.family, StaticSets[rank], func(element Element) bool {
				yield(rejectedKey{set.family, set.name, element.Key})
				return true
			})
		}
	}
	for i := range s.Ports {
		port := &s.Ports[i]
		for _, chain := range port.Chains(config) {
			yield(rejectedKey{family: port.ID.Family, name: chain.Name})
		}
		for _, set := range port.sets() {
			yield(rejectedKey{family: port.ID.Family, name: set.Name})
			if !sets[objectKey{port.ID.Family, set.Name}] {
				continue
			}
			for element := range port.eachDedicatedSlot() {
				yield(rejectedKey{port.ID.Family, set.Name, element.Key})
			}
		}
	}
}
