package manifest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// ForeignField is the reason of a ParseError with IsForeign.
const ForeignField = "unknown field, perhaps of a newer Kubernetes"

// maxUnknownFields bounds how many unknown fields of one object are reported, so that they do not crowd out others.
const maxUnknownFields = 20

// DecodeAsClient decodes an object that an API server may have written. Such a server may be newer than this program,
// and Kubernetes clients ignore unknown fields. The ParseError of such a field has IsForeign, and the object is valid
// without it.
//
// But a user may have misspelled a field, and loadBalancerSourceRange must not open a load balancer to every client. So
// a field whose name resembles a known one of the same struct, or equals one from elsewhere in the object, is an
// ordinary ParseError as in Decode. Each unknown name is reported once per struct type.
func (p *Part) DecodeAsClient(into any) []ParseError {
	return append(decodeAsClient(p.JSON, into), p.duplicateFields("")...)
}

// decodeAsClient decodes JSON text and returns a ParseError for each error. The decoder reports at most 100 fields.
func decodeAsClient(text []byte, into any) []ParseError {
	root := reflect.TypeOf(into)
	topPaths := topFields(root)
	seen := map[unknownField]bool{}
	var faults, typos, foreign []ParseError
	for _, fault := range decodeStrictly(text, into) {
		if fault.Reason != UnknownField {
			faults = append(faults, fault)
			continue
		}
		parent, name := parentOf(root, fault.Field)
		if seen[unknownField{parent, name}] {
			continue
		}
		seen[unknownField{parent, name}] = true
		suggestion := topPaths[name]
		if closest := policy.Suggest(name, fieldsOf(parent).names...); closest != "" {
			suggestion = strings.TrimSuffix(fault.Field, name) + closest
		}
		switch {
		case suggestion != "" && len(typos) < maxUnknownFields:
			typos = append(typos, ParseError{Field: fault.Field, Reason: UnknownField + "; did you mean " + suggestion + "?"})
		case suggestion == "" && len(foreign) < maxUnknownFields:
			foreign = append(foreign, ParseError{Field: fault.Field, Reason: ForeignField, IsForeign: true})
		}
	}
	return slices.Concat(faults, typos, foreign)
}

// unknownField identifies an unknown field by its struct type and name, regardless of list indexes.
type unknownField struct {
	parent reflect.Type
	name   string
}

// parentOf returns the struct type that contains an unknown field, and the field's name, which may contain dots.
func parentOf(t reflect.Type, path string) (parent reflect.Type, name string) {
	for {
		t = jsonType(t)
		switch {
		case isStruct(t):
			parent, name = t, path
			step, rest, _ := strings.Cut(path, ".")
			step, index, isList := strings.Cut(step, "[")
			if t, path = fieldsOf(t).types[step], rest; isList {
				path = "[" + index + "." + rest
			}
		case t != nil && t.Kind() == reflect.Slice:
			_, path, _ = strings.Cut(path, ".")
			t = t.Elem()
		default:
			return parent, name
		}
	}
}

// fields are the JSON fields of a struct, in their order.
type fields struct {
	names []string
	types map[string]reflect.Type
}

// fieldsOf returns the fields of a struct, including those of embedded structs.
func fieldsOf(object reflect.Type) fields {
	found := fields{types: map[string]reflect.Type{}}
	for field := range object.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" && options == "":
		case field.Anonymous && name == "" && isStruct(jsonType(field.Type)):
			embedded := fieldsOf(jsonType(field.Type))
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

func (f *fields) add(name string, t reflect.Type) {
	f.names = append(f.names, name)
	f.types[name] = t
}

// jsonType dereferences pointer types. It returns nil for a type that implements json.Unmarshaler.
func jsonType(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	return t
}

func isStruct(t reflect.Type) bool { return t != nil && t.Kind() == reflect.Struct }

// topFields returns the paths, by name, of the fields that users write: those of the object itself, its metadata and
// its spec. A name that is not among these is only compared with the fields of its own struct.
func topFields(object reflect.Type) map[string]string {
	paths := map[string]string{}
	add := func(parent string, t reflect.Type) (found fields) {
		if t = jsonType(t); isStruct(t) {
			found = fieldsOf(t)
		}
		for _, name := range found.names {
			if paths[name] == "" {
				paths[name] = joinPath(parent, name)
			}
		}
		return found
	}
	root := add("", object)
	add("spec", root.types["spec"])
	add("metadata", root.types["metadata"])
	return paths
}
