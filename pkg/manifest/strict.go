package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
)

// The reasons of faults that say only that a field should not be there.
const (
	UnknownField   = "unknown field"
	DuplicateField = "duplicate field"
)

// Decode decodes the object strictly, as the API server does, and returns a Fault for each field that is unknown, set
// twice or of the wrong type.
func (p *Part) Decode(into any) []ParseError {
	return append(strictly(p.JSON, into), p.duplicateFields("")...)
}

// strictly decodes JSON text, and returns a Fault for each error.
func strictly(text []byte, into any) []ParseError {
	errs, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		errs = append(errs, err)
	}
	var faults []ParseError
	for _, err := range errs {
		field, reason := describe(err)
		faults = append(faults, ParseError{Field: field, Reason: reason})
	}
	return faults
}

// duplicateFields returns a Fault for each field of the part that the YAML text sets twice, except for those with a
// prefix.
func (p *Part) duplicateFields(besides string) []ParseError {
	var faults []ParseError
	for _, duplicate := range p.duplicates {
		field, ok := inRange(duplicate, p.Path)
		if isMeant := besides == "" || !strings.HasPrefix(field, besides); ok && isMeant {
			faults = append(faults, ParseError{Field: field, Reason: DuplicateField})
		}
	}
	return faults
}

// fieldError is what sigs.k8s.io/json returns for a field that is unknown or set twice.
type fieldError interface {
	error
	FieldPath() string
}

// describe returns the field and the reason of an error of the JSON decoder.
func describe(err error) (field, reason string) {
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		wanted := mistyped.Type.String()
		if kind := mistyped.Type.Kind(); kind == reflect.Struct || kind == reflect.Map { // whose name is ours
			wanted = "an object"
		}
		return mistyped.Field, fmt.Sprintf("must be %s, not %s", wanted, mistyped.Value)
	}
	if strict, ok := errors.AsType[fieldError](err); ok {
		reason, _, _ := strings.Cut(strict.Error(), ` "`)
		return strict.FieldPath(), reason
	}
	return "", err.Error()
}

// join appends a field to the path of what holds it.
func join(parent, child string) string {
	return strings.Trim(parent+"."+child, ".")
}

// inRange returns the rest of a path below a parent.
func inRange(field, parent string) (rest string, ok bool) {
	if parent == "" {
		return field, true
	}
	return strings.CutPrefix(field, parent+".")
}
