package rules

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Violation is one rule broken in one place. Two violations with the same rule, field and bad value are the same.
type Violation struct {
	Rule ID
	// Error says where, what and how to mend it. Its text does not name the rule.
	Error *field.Error

	row *Rule // in the table
	// value is the bad value in full; the error's own text is bounded.
	value string
	// inputs is everything else that the violation depends on. If it changes, the author is warned rather than denied.
	inputs string
	// advice completes the error's detail; nil if the detail is complete. It is called only if the violation is reported:
	// an object has room for a hundred thousand of them, and searching for what was meant is most of the work.
	advice func() string
}

// violationOf makes a violation in a field. Its rule is that of the row.
func violationOf(err *field.Error, value string, inputs ...string) Violation {
	return Violation{Error: err, value: value, inputs: strings.Join(inputs, "\x00")}
}

// single is a list of one violation.
func single(err *field.Error, value string, inputs ...string) []Violation {
	return []Violation{violationOf(err, value, inputs...)}
}

// complete is the violation with its advice.
func (v Violation) complete() Violation {
	if v.advice != nil {
		err := *v.Error
		err.Detail += v.advice()
		v.Error, v.advice = &err, nil
	}
	return v
}

// identity is what makes two violations the same.
type identity struct {
	rule         ID
	field, value string
}

func (v Violation) identity() identity {
	return identity{rule: v.Rule, field: v.Error.Field, value: v.value}
}

// errorOf makes an error with a text of its own, of a type for which package field has no such function.
func errorOf(kind field.ErrorType, path *field.Path, value, detail string) *field.Error {
	return &field.Error{Type: kind, Field: path.String(), BadValue: truncateValue(value), Detail: detail}
}

// Message is what a user reads: `<path>: <reason>; <fix> [SVC006]`. The text of a denial begins as Kubernetes' own do,
// with the kind of error and the bad value. That of a warning does not: API servers cut warnings that are long.
func (v Violation) Message() string {
	text := v.Error.ErrorBody()
	if v.row.Default == Warn {
		text = v.Error.Detail
	}
	return v.Error.Field + ": " + text + " [" + string(v.Rule) + "]"
}

// maxShown is how many characters of a value a message repeats. An annotation may have 256 KiB.
const maxShown = 100

// maxKey is the length of the longest key that an annotation or label can have: a prefix, a slash and a name.
const maxKey = 253 + 1 + 63

// truncateValue is a value as messages repeat it.
func truncateValue(value string) string { return Cut(value, maxShown) }

// annotation and label return the path of an object's annotation or label. A file may have keys that an API server
// would refuse, so each character that is not printable becomes a question mark.
func annotation(key string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(shownKey(key))
}

func label(key string) *field.Path { return field.NewPath("metadata", "labels").Key(shownKey(key)) }

func shownKey(key string) string {
	isShown := func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}
	return strings.Map(isShown, Cut(key, maxKey))
}

// Cut cuts a text that a caller wrote, so that it can be repeated, after that many bytes at most, between two
// characters.
func Cut(text string, most int) string { return sanitize.Cut(text, most, "…") }
