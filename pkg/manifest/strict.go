package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
)

// The reasons of errors about fields that must not be present.
const (
	UnknownField   = "unknown field"
	DuplicateField = "duplicate field"
)

// Decode decodes the object strictly, as the API server does. It returns a ParseError for each field that is unknown,
// set twice or of the wrong type.
func (p *Part) Decode(into any) []ParseError {
	return append(strictly(p.JSON, into), p.duplicateFields("")...)
}

// strictly decodes JSON text and returns a ParseError for each error.
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

// duplicateFields returns a ParseError for each field of the part that the YAML text sets twice, except for those with
// a prefix.
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

// fieldError is the error of sigs.k8s.io/json for a field that is unknown or set twice.
type fieldError interface {
	error
	FieldPath() string
}

// describe returns the field and the reason of an error of the JSON decoder.
func describe(err error) (field, reason string) {
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		wanted := mistyped.Type.String()
		if kind := mistyped.Type.Kind(); kind == reflect.Struct || kind == reflect.Map { // a type of this program
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

// join appends a field to the path of its parent.
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
