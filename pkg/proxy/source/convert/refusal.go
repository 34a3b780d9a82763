package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Refusal is an object whose newest version a running proxy refuses, or cannot find, with the version in force: the
// last good one. A process that starts has never seen that one.
type Refusal struct {
	File string           // relative to the folder; empty for an object of a cluster
	Kind string           // as in a finding; empty for a file, or a document of it, that cannot be read
	Name model.ObjectName // without a namespace if the kind is cluster-scoped
	// InForce is the last good version; nil if there is none.
	InForce any
}

// refusalPage is its form as JSON. The version in force is written as this program stores it.
type refusalPage struct {
	File      string          `json:"file,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name,omitempty"`
	InForce   json.RawMessage `json:"lastKnownGood"`
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r Refusal) MarshalJSON() ([]byte, error) {
	inForce, err := json.Marshal(r.InForce)
	if err != nil {
		return nil, err
	}
	return json.Marshal(refusalPage{r.File, r.Kind, r.Name.Namespace, r.Name.Name, inForce})
}

// UnmarshalJSON reads what another process of this version wrote. A kind that this one does not read is an error.
func (r *Refusal) UnmarshalJSON(text []byte) error {
	var page refusalPage
	if err := json.Unmarshal(text, &page); err != nil {
		return err
	}
	*r = Refusal{File: page.File, Kind: page.Kind, Name: model.ObjectName{Namespace: page.Namespace, Name: page.Name}}
	if string(page.InForce) == "null" || len(page.InForce) == 0 {
		return nil
	}
	kind := slices.IndexFunc(Kinds, func(kind *Kind) bool { return kind.Name == page.Kind })
	if kind < 0 {
		return fmt.Errorf("there is no kind %q", page.Kind)
	}
	var err error
	r.InForce, err = Kinds[kind].read(page.InForce)
	return err
}

// Subject returns what the refusal is about.
func (r *Refusal) Subject() model.Subject { return model.SubjectOf(r.File, r.Kind, r.Name) }

// LastGood returns the versions in force of what is refused.
func LastGood(refusals []Refusal) map[model.Subject]any {
	inForce := map[model.Subject]any{}
	for i := range refusals {
		if refusals[i].InForce != nil {
			inForce[refusals[i].Subject()] = refusals[i].InForce
		}
	}
	return inForce
}

// SortRefusals sorts refusals by file, kind and name, and leaves out repetitions.
func SortRefusals(refusals []Refusal) []Refusal {
	compare := func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Kind, b.Kind), a.Name.Compare(b.Name))
	}
	slices.SortFunc(refusals, compare)
	return slices.CompactFunc(refusals, func(a, b Refusal) bool { return compare(a, b) == 0 })
}
