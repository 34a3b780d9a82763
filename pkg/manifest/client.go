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
	return append(asClient(p.JSON, into), p.duplicateFields("")...)
}

// asClient decodes JSON text and returns a ParseError for each error. The decoder reports at most 100 fields.
func asClient(text []byte, into any) []ParseError {
	root := reflect.TypeOf(into)
	elsewhere := topFields(root)
	told := map[unknownField]bool{}
	var faults, wrong, passedOver []ParseError
	for _, fault := range strictly(text, into) {
		if fault.Reason != UnknownField {
			faults = append(faults, fault)
			continue
		}
		place, name := parentOf(root, fault.Field)
		if told[unknownField{place, name}] {
			continue
		}
		told[unknownField{place, name}] = true
		meant := elsewhere[name]
		if near := policy.Suggest(name, fieldsOf(place).names...); near != "" {
			meant = strings.TrimSuffix(fault.Field, name) + near
		}
		switch {
		case meant != "" && len(wrong) < maxUnknownFields:
			wrong = append(wrong, ParseError{Field: fault.Field, Reason: UnknownField + "; did you mean " + meant + "?"})
		case meant == "" && len(passedOver) < maxUnknownFields:
			passedOver = append(passedOver, ParseError{Field: fault.Field, Reason: ForeignField, IsForeign: true})
		}
	}
	return slices.Concat(faults, wrong, passedOver)
}

// unknownField identifies an unknown field by its struct type and name, whatever its index in a list.
type unknownField struct {
	parent reflect.Type
	name   string
}

// parentOf returns the struct type that contains an unknown field, and the field's name, which may contain dots.
func parentOf(of reflect.Type, path string) (place reflect.Type, name string) {
	for {
		of = written(of)
		switch {
		case isStruct(of):
			place, name = of, path
			step, rest, _ := strings.Cut(path, ".")
			step, index, isList := strings.Cut(step, "[")
			if of, path = fieldsOf(of).types[step], rest; isList {
				path = "[" + index + "." + rest
			}
		case of != nil && of.Kind() == reflect.Slice:
			_, path, _ = strings.Cut(path, ".")
			of = of.Elem()
		default:
			return place, name
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

// written returns a type without pointers; nil if its values decode their JSON themselves.
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

// topFields returns the paths, by name, of the fields that users write: those of the object itself, its metadata and
// its spec. Other names are treated as fields of the struct that contains them.
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
