package manifest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// ForeignField is the reason of a fault that IsForeign.
const ForeignField = "unknown field, perhaps of a newer Kubernetes"

// mostUnknown bounds the unknown fields that are reported of one object, so that no object drowns the others.
const mostUnknown = 20

// DecodeAsClient decodes an object that an API server may have written. Such a server may be newer than this program, and
// clients of Kubernetes pass over the fields that they do not know: the Fault of such a field IsForeign, and the object is
// as good as without it.
//
// A person may have misspelled a field instead, and loadBalancerSourceRange must not open a load balancer to the world.
// So a field like a known one of the same place, or with the name of one that belongs elsewhere in the object, is a
// Fault like those of Decode. Each unknown name is reported once for each kind of place.
func (p *Part) DecodeAsClient(into any) []Fault {
	return append(asClient(p.JSON, into), p.duplicateFields("")...)
}

// asClient decodes JSON text, and returns a Fault for each error.
func asClient(text []byte, into any) []Fault {
	faults := strictly(text, into)
	if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Reason == UnknownField }) {
		return faults
	}
	// The decoder stops counting fields that are unknown or set twice at 100, and one such field in each endpoint
	// reaches that number.
	faults = slices.DeleteFunc(faults, func(f Fault) bool { return f.Reason == UnknownField || f.Reason == DuplicateField })
	root := reflect.TypeOf(into)
	s := fieldSearch{
		decoder: json.NewDecoder(bytes.NewReader(text)), elsewhere: topFields(root), fields: map[reflect.Type]fields{}, told: map[foreign]bool{},
	}
	s.value(root)
	return append(append(faults, s.wrong...), s.foreign...)
}

// fields are the fields of a struct in JSON, in their order.
type fields struct {
	names []string
	types map[string]reflect.Type
}

// fieldsOf returns the fields of a struct, those of what it embeds included.
func fieldsOf(object reflect.Type) fields {
	found := fields{types: map[string]reflect.Type{}}
	for field := range object.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" && options == "":
		case field.Anonymous && name == "" && isStruct(written(field.Type)):
			embedded := fieldsOf(written(field.Type))
			for _, name := range embedded.names {
				found.add(name, embedded.types[name])
			}
		case name == "" && field.IsExported():
			found.add(field.Name, field.Type)
		case name != "":
			found.add(name, field.Type)
		}
	}
	return found
}

func (f *fields) add(name string, of reflect.Type) {
	f.names = append(f.names, name)
	f.types[name] = of
}

// written returns the type as which values of a type are written, without pointers; nil if they decode their JSON
// themselves.
func written(of reflect.Type) reflect.Type {
	for of != nil && of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of == nil || reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	return of
}

func isStruct(of reflect.Type) bool { return of != nil && of.Kind() == reflect.Struct }

// topFields returns the paths of the fields of an object that people write, by their names: those of the object itself,
// its metadata and its spec. Other names are taken for fields of the struct in which they stand.
func topFields(object reflect.Type) map[string]string {
	paths := map[string]string{}
	add := func(part string, of reflect.Type) (found fields) {
		if of = written(of); isStruct(of) {
			found = fieldsOf(of)
		}
		for _, name := range found.names {
			if paths[name] == "" {
				paths[name] = join(part, name)
			}
		}
		return found
	}
	root := add("", object)
	add("spec", root.types["spec"])
	add("metadata", root.types["metadata"])
	return paths
}

// foreign is an unknown field by its place, whichever element of a list that is in.
type foreign struct {
	place reflect.Type
	name  string
}

// fieldSearch walks JSON text beside the type that it is decoded into. The decoder ran before, and found the text valid
// and not too deep.
type fieldSearch struct {
	decoder   *json.Decoder
	elsewhere map[string]string
	fields    map[reflect.Type]fields
	path      []string
	told      map[foreign]bool

	wrong, foreign []Fault
}

// value walks one value of a type. If the type is nil, nothing is known about the value, and nothing in it is judged.
func (s *fieldSearch) value(of reflect.Type) {
	of = written(of)
	token, err := s.decoder.Token()
	if err != nil {
		return
	}
	switch token {
	case json.Delim('['):
		var element reflect.Type
		if of != nil && of.Kind() == reflect.Slice {
			element = of.Elem()
		}
		for i := 0; s.decoder.More(); i++ {
			s.below("["+strconv.Itoa(i)+"]", element)
		}
		_, _ = s.decoder.Token() // the closing delimiter, which is there
	case json.Delim('{'):
		s.object(of)
		_, _ = s.decoder.Token()
	}
}

func (s *fieldSearch) below(step string, of reflect.Type) {
	s.path = append(s.path, step)
	s.value(of)
	s.path = s.path[:len(s.path)-1]
}

// object walks the fields of an object.
func (s *fieldSearch) object(of reflect.Type) {
	var known fields
	if isStruct(of) {
		known = s.fieldsOf(of)
	}
	seen := map[string]bool{}
	for s.decoder.More() {
		key, err := s.decoder.Token()
		name, isName := key.(string)
		if err != nil || !isName {
			return
		}
		field, isKnown := known.types[name]
		if of != nil && of.Kind() == reflect.Map {
			field = of.Elem()
		}
		switch {
		case isStruct(of) && !isKnown:
			s.unknown(of, name)
		case of != nil && seen[name]:
			s.tell(&s.wrong, Fault{Field: s.at(name), Reason: DuplicateField})
		}
		seen[name] = true
		s.below("."+name, field)
	}
}

func (s *fieldSearch) fieldsOf(place reflect.Type) fields {
	known, isThere := s.fields[place]
	if !isThere {
		known = fieldsOf(place)
		s.fields[place] = known
	}
	return known
}

// unknown notes an unknown field of a struct, as an error if another field was probably meant.
func (s *fieldSearch) unknown(place reflect.Type, name string) {
	if s.told[foreign{place, name}] {
		return
	}
	meant := s.elsewhere[name]
	if near := policy.Suggest(name, s.fieldsOf(place).names...); near != "" {
		meant = s.at(near)
	}
	if meant != "" {
		s.tell(&s.wrong, Fault{Field: s.at(name), Reason: UnknownField + "; did you mean " + meant + "?"})
	} else {
		s.tell(&s.foreign, Fault{Field: s.at(name), Reason: ForeignField, IsForeign: true})
	}
	if len(s.told) < mostUnknown {
		s.told[foreign{place, name}] = true
	}
}

func (s *fieldSearch) tell(to *[]Fault, fault Fault) {
	if len(*to) < mostUnknown {
		*to = append(*to, fault)
	}
}

// at returns the path of a field of the value that is being walked.
func (s *fieldSearch) at(name string) string {
	return strings.TrimPrefix(strings.Join(s.path, "")+"."+name, ".")
}
