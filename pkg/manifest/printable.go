package manifest

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxPrinted bounds what is printed of one text, in bytes. A value of many megabytes belongs in its file, not in a
// log.
const MaxPrinted = 1000

// Printable makes a text of a file safe to print, whatever the file held: one line, no control characters, not too
// long.
func Printable(text string) string {
	if len(text) > MaxPrinted {
		end := MaxPrinted
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "..."
	}
	if strings.IndexFunc(text, isUnprintable) < 0 && utf8.ValidString(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }
