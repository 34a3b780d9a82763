package rules

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Violation is a violation of a rule in one field. Two violations with the same rule, field and bad value are the same.
type Violation struct {
	Rule ID
	// Error contains the field, the problem and the fix. Its text does not contain the rule.
	Error *field.Error

	definition *Rule // the rule's entry in the list of rules
	// value is the full bad value; the error's own text is bounded.
	value string
	// inputs are all other values on which the violation depends. If they change, the author gets a warning, not a denial.
	inputs string
	// advice returns the end of the error's detail; nil if the detail is complete. It is called only if the violation is
	// reported: an object may have a hundred thousand of them, and the search for a suggestion is most of the work.
	advice func() string
}

// violationOf returns a violation in a field. examine sets its rule.
func violationOf(err *field.Error, value string, inputs ...string) Violation {
	return Violation{Error: err, value: value, inputs: strings.Join(inputs, "\x00")}
}

// oneViolation returns a list of one violation.
func oneViolation(err *field.Error, value string, inputs ...string) []Violation {
	return []Violation{violationOf(err, value, inputs...)}
}

// complete returns the violation with its advice.
func (v Violation) complete() Violation {
	if v.advice != nil {
		err := *v.Error
		err.Detail += v.advice()
		v.Error, v.advice = &err, nil
	}
	return v
}

// identity is equal for violations that are the same.
type identity struct {
	rule         ID
	field, value string
}

func (v Violation) identity() identity {
	return identity{rule: v.Rule, field: v.Error.Field, value: v.value}
}

// errorOf returns an error with a given text, of a type for which package field has no such function.
func errorOf(kind field.ErrorType, path *field.Path, value, detail string) *field.Error {
	return &field.Error{Type: kind, Field: path.String(), BadValue: truncateValue(value), Detail: detail}
}

// Message returns the text for users: `<path>: <reason>; <fix> [SVC006]`. The text of a denial begins as Kubernetes'
// own do, with the type of error and the bad value. That of a warning does not: API servers truncate long warnings.
func (v Violation) Message() string {
	text := v.Error.ErrorBody()
	if v.definition.Default == Warn {
		text = v.Error.Detail
	}
	return v.Error.Field + ": " + text + " [" + string(v.Rule) + "]"
}

// maxValueLength is how many bytes of a value a message repeats. An annotation may have 256 KiB.
const maxValueLength = 100

// maxKey is the length of the longest key that an annotation or label can have: a prefix, a slash and a name.
const maxKey = 253 + 1 + 63

// truncateValue truncates a value for messages.
func truncateValue(value string) string { return Cut(value, maxValueLength) }

// annotation and label return the path of an object's annotation or label. A file may have keys that an API server
// would reject, so unprintable characters are replaced by a question mark.
func annotation(key string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(displayKey(key))
}

func label(key string) *field.Path { return field.NewPath("metadata", "labels").Key(displayKey(key)) }

func displayKey(key string) string {
	replaceUnprintable := func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}
	return strings.Map(replaceUnprintable, Cut(key, maxKey))
}

// Cut truncates a text from a client at a character boundary, to at most the given number of bytes plus an ellipsis.
func Cut(text string, maxBytes int) string { return sanitize.Cut(text, maxBytes, "…") }
