// Package sanitize makes untrusted text safe to print. Names, labels, messages, and replies of servers and other
// processes may contain anything: a line break that starts a forged line, or bytes that control a terminal.
//
// Values are printed by Fprintf, which puts each on one line. All output of a command also passes through Escape
// (package cli), which keeps the program's own line breaks and tabs.
package sanitize

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxShort is the maximum size of a short text, in bytes. A value of many megabytes does not belong in a log.
const MaxShort = 1000

// Text returns a text as one line without control characters.
func Text(text string) string {
	if strings.IndexFunc(text, needsEscape) < 0 && utf8.ValidString(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func needsEscape(r rune) bool { return !unicode.IsPrint(r) }

// Truncate is Text, truncated to MaxShort bytes.
func Truncate(text string) string {
	return Text(Cut(text, MaxShort, "..."))
}

// Cut truncates a text to at most maxBytes bytes, without splitting a character, and then appends mark. It returns a
// text that is short enough unchanged.
func Cut(text string, maxBytes int, mark string) string {
	if len(text) <= maxBytes {
		return text
	}
	for maxBytes > 0 && !utf8.RuneStart(text[maxBytes]) {
		maxBytes--
	}
	return text[:maxBytes] + mark
}

// Fprintf is fmt.Fprintf with each argument put on one line by Text. It modifies the slice of arguments. The format
// must be trusted.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	for i := range args {
		args[i] = value(args[i])
	}
	return fmt.Fprintf(w, format, args...)
}

// value returns a number or a bool unchanged, for the verbs of its type, and anything else as safe text.
func value(arg any) any {
	switch arg.(type) {
	case error, fmt.Stringer:
		return Text(fmt.Sprint(arg))
	}
	switch kind := reflect.ValueOf(arg).Kind(); {
	case kind == reflect.Bool, reflect.Int <= kind && kind <= reflect.Float64:
		return arg
	}
	return Text(fmt.Sprint(arg))
}

// Escape escapes what controls a terminal, except for line breaks and tabs: control characters, characters that change
// the writing direction, line breaks that only Unicode has, and bytes that are not UTF-8. It escapes them as JSON does,
// so JSON keeps its meaning. rest is an incomplete character at the end, for the next call.
func Escape(text []byte) (escaped, rest []byte) {
	clean := 0 // the text before this offset is escaped already
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			if !utf8.FullRune(text[i:]) {
				rest, text = text[i:], text[:i]
				break
			}
			r, size = utf8.DecodeRune(text[i:])
		}
		if isInvalid := r == utf8.RuneError && size == 1; isInvalid || isControl(r) {
			escaped = append(escaped, text[clean:i]...)
			escaped = append(escaped, escapeRune(r, text[i], isInvalid)...)
			clean = i + size
		}
		i += size
	}
	if clean == 0 {
		return text, rest
	}
	return append(escaped, text[clean:]...), rest
}

func isControl(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == '\x7f'
	}
	return unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

func escapeRune(r rune, first byte, isInvalid bool) string {
	if isInvalid {
		return fmt.Sprintf(`\x%02x`, first)
	}
	return fmt.Sprintf(`\u%04x`, r) // none has more than four digits
}
