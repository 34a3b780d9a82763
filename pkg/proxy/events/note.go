package events

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The API server refuses Events with more bytes than these (pkg/apis/core/validation/events.go of Kubernetes 1.36).
const (
	maxNote     = 1024
	maxInstance = 128
)

// printable makes a text safe for everybody's terminal: one line of printable characters in UTF-8. Notes quote what strangers wrote
// into their objects.
func printable(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, isUnprintable) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// bounded cuts a text that has more than limit bytes, between two characters, and shows that by three dots.
func bounded(text string, limit int) string {
	const dots = "..."
	if len(text) <= limit {
		return text
	}
	end := limit - len(dots)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + dots
}

// noteOf returns a text as the API server takes it. It is cut before it is looked at, for it may be many megabytes, and after that, for
// an unprintable character takes more bytes when it is quoted.
func noteOf(text string) string { return bounded(printable(bounded(text, maxNote)), maxNote) }
