package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Rejection is an object whose newest version a running proxy rejects, or cannot find, with the active version: the
// last known good one. A starting process does not know that version.
type Rejection struct {
	File string           // relative to the folder; empty for an object of a cluster
	Kind string           // as in a finding; empty for a file, or a document of it, that cannot be read
	Name model.ObjectName // without a namespace if the kind is cluster-scoped
	// Applied is the last known good version; nil if there is none.
	Applied any
}

// rejectionJSON is the JSON form of a Rejection. The active version is written as this program stores it.
type rejectionJSON struct {
	File      string          `json:"file,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name,omitempty"`
	Applied   json.RawMessage `json:"lastKnownGood"`
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (r Rejection) MarshalJSON() ([]byte, error) {
	applied, err := json.Marshal(r.Applied)
	if err != nil {
		return nil, err
	}
	return json.Marshal(rejectionJSON{r.File, r.Kind, r.Name.Namespace, r.Name.Name, applied})
}

// UnmarshalJSON reads the form that another process of this version wrote. An unknown kind is an error.
func (r *Rejection) UnmarshalJSON(text []byte) error {
	var decoded rejectionJSON
	if err := json.Unmarshal(text, &decoded); err != nil {
		return err
	}
	*r = Rejection{File: decoded.File, Kind: decoded.Kind, Name: model.ObjectName{Namespace: decoded.Namespace, Name: decoded.Name}}
	if string(decoded.Applied) == "null" || len(decoded.Applied) == 0 {
		return nil
	}
	kind := slices.IndexFunc(Kinds, func(kind *Kind) bool { return kind.Name == decoded.Kind })
	if kind < 0 {
		return fmt.Errorf("unknown kind %q", decoded.Kind)
	}
	var err error
	r.Applied, err = Kinds[kind].read(decoded.Applied)
	return err
}

// Subject returns the subject of the rejection.
func (r *Rejection) Subject() model.Subject { return model.SubjectOf(r.File, r.Kind, r.Name) }

// LastKnownGoodValues returns the active versions of rejected objects.
func LastKnownGoodValues(rejections []Rejection) map[model.Subject]any {
	values := map[model.Subject]any{}
	for i := range rejections {
		if rejections[i].Applied != nil {
			values[rejections[i].Subject()] = rejections[i].Applied
		}
	}
	return values
}

// SortRejections sorts rejections by file, kind and name, and removes duplicates.
func SortRejections(rejections []Rejection) []Rejection {
	compare := func(a, b Rejection) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Kind, b.Kind), a.Name.Compare(b.Name))
	}
	slices.SortFunc(rejections, compare)
	return slices.CompactFunc(rejections, func(a, b Rejection) bool { return compare(a, b) == 0 })
}
