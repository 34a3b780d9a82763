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
	return append(decodeStrictly(p.JSON, into), p.duplicateFields("")...)
}

// decodeStrictly decodes JSON text and returns a ParseError for each error.
func decodeStrictly(text []byte, into any) []ParseError {
	errs, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		errs = append(errs, err)
	}
	var faults []ParseError
	for _, err := range errs {
		field, reason := describeDecodeError(err)
		faults = append(faults, ParseError{Field: field, Reason: reason})
	}
	return faults
}

// duplicateFields returns a ParseError for each field of the part that the YAML text sets twice, except for those with
// a prefix.
func (p *Part) duplicateFields(exceptPrefix string) []ParseError {
	var faults []ParseError
	for _, duplicate := range p.duplicates {
		field, ok := cutParent(duplicate, p.Path)
		if isIncluded := exceptPrefix == "" || !strings.HasPrefix(field, exceptPrefix); ok && isIncluded {
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

// describeDecodeError returns the field and the reason of an error of the JSON decoder.
func describeDecodeError(err error) (field, reason string) {
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := typeErr.Type.String()
		if kind := typeErr.Type.Kind(); kind == reflect.Struct || kind == reflect.Map { // a type of this program
			want = "an object"
		}
		return typeErr.Field, fmt.Sprintf("must be %s, not %s", want, typeErr.Value)
	}
	if strict, ok := errors.AsType[fieldError](err); ok {
		reason, _, _ := strings.Cut(strict.Error(), ` "`)
		return strict.FieldPath(), reason
	}
	return "", err.Error()
}

// joinPath appends a field to the path of its parent.
func joinPath(parent, child string) string {
	return strings.Trim(parent+"."+child, ".")
}

// cutParent returns the rest of a path below a parent.
func cutParent(field, parent string) (rest string, ok bool) {
	if parent == "" {
		return field, true
	}
	return strings.CutPrefix(field, parent+".")
}
