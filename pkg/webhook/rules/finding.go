package rules

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// finding is a violation as it was found, with what tells it from others. The error's own text is bounded; these are not.
type finding struct {
	rule ID
	err  *field.Error
	// value is the bad value in full. A finding with the same rule, field and value is the same mistake.
	value string
	// inputs is all the rest on which the finding depends. If it changes, the author is warned, and not denied.
	inputs string
	// advice ends the error's detail; nil if that has its end. It is asked for only if somebody is told: an object has room for a hundred
	// thousand mistakes, and to look for what was meant is most of the work.
	advice func() string
}

// findingOf makes a finding about a field.
func findingOf(rule ID, err *field.Error, value string, inputs ...string) finding {
	return finding{rule: rule, err: err, value: value, inputs: strings.Join(inputs, "\x00")}
}

// violation is the finding as its author is told of it.
func (f finding) violation() Violation {
	err := *f.err
	if f.advice != nil {
		err.Detail += f.advice()
	}
	return Violation{Rule: f.rule, Error: &err}
}

// mistake is what makes two findings the same.
type mistake struct {
	rule         ID
	field, value string
}

func (f finding) mistake() mistake { return mistake{rule: f.rule, field: f.err.Field, value: f.value} }

// errorOf makes an error with a text of its own, of one of the types that field has no such function for.
func errorOf(kind field.ErrorType, path *field.Path, value, detail string) *field.Error {
	return &field.Error{Type: kind, Field: path.String(), BadValue: shown(value), Detail: detail}
}

// Message is what a user is told: `<path>: <reason>; <fix> [SVC006]`. The text of a denial begins as Kubernetes' own do, with the kind
// of error and the bad value. That of a warning does not: API servers cut warnings that are long.
func (v Violation) Message() string {
	text := v.Error.ErrorBody()
	if rule, _ := RuleOf(v.Rule); rule.Default == Warn {
		text = v.Error.Detail
	}
	return v.Error.Field + ": " + text + " [" + string(v.Rule) + "]"
}

// maxShown is how many characters of somebody's value a message repeats. An annotation may have 256 KiB.
const maxShown = 100

// maxKey is the length of the longest key that an annotation or label can have: a prefix, a slash and a name.
const maxKey = 253 + 1 + 63

// shown is a value as messages repeat it.
func shown(value string) string { return Cut(value, maxShown) }

// annotation and label are the paths of an object's. Whoever reads a file may have keys there that an API server would refuse, so
// what is not printable does not get into the path.
func annotation(key string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(printable(key))
}

func label(key string) *field.Path { return field.NewPath("metadata", "labels").Key(printable(key)) }

func printable(key string) string {
	isShown := func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}
	return strings.Map(isShown, Cut(key, maxKey))
}

// Cut cuts a text of somebody, so that it can be repeated, after that many bytes at most, between two characters.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
