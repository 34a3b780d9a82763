// Package sanitize makes what others wrote safe to print. Names, labels, messages, answers of servers and of other
// processes may hold anything: a line break that would begin a line of ours, or bytes that control a terminal.
//
// A value is printed by Fprintf, which makes one line of it. All that a command prints goes through Escape once more
// (package cli), where line breaks and tabs are ours.
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

// MaxShort bounds a short text, in bytes. A value of many megabytes belongs in its file, not in a log.
const MaxShort = 1000

// Text makes one line of a text, without control characters.
func Text(text string) string {
	if strings.IndexFunc(text, needsEscape) < 0 && utf8.ValidString(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func needsEscape(r rune) bool { return !unicode.IsPrint(r) }

// Truncate is Text, cut off after MaxShort bytes.
func Truncate(text string) string {
	return Text(Cut(text, MaxShort, "..."))
}

// Cut cuts a text that has more than most bytes after most bytes, or before the character that would not be whole, and puts
// a mark there.
func Cut(text string, most int, mark string) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + mark
}

// Fprintf is that of package fmt, except for its arguments: Text makes one line of each, in the slice that was handed in. The
// format is ours.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	for i := range args {
		args[i] = value(args[i])
	}
	return fmt.Fprintf(w, format, args...)
}

// value returns a number as it is, for the verbs of numbers, and anything else as a safe text.
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

// Escape makes what controls a terminal visible, except for line breaks and tabs: control characters, those that change
// the direction of writing, line breaks that only Unicode has, and bytes that are not UTF-8. It writes them as JSON
// does, so that JSON means the same as before. A character whose end is missing is left over for the next call.
func Escape(text []byte) (escaped, rest []byte) {
	clean := 0 // this much of the text is escaped already
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			if !utf8.FullRune(text[i:]) {
				rest, text = text[i:], text[:i]
				break
			}
			r, size = utf8.DecodeRune(text[i:])
		}
		if isNoText := r == utf8.RuneError && size == 1; isNoText || isControl(r) {
			escaped = append(escaped, text[clean:i]...)
			escaped = append(escaped, escapeRune(r, text[i], isNoText)...)
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

func escapeRune(r rune, first byte, isNoText bool) string {
	if isNoText {
		return fmt.Sprintf(`\x%02x`, first)
	}
	return fmt.Sprintf(`\u%04x`, r) // none of them has more than four digits
}
