package ruleset

import (
	"strings"
	"unicode/utf8"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// maxComment is the maximum length of a comment. nft accepts 128 characters.
const maxComment = 127

// commentOf returns the comment of the elements of a port's frontends: namespace/name:port, or namespace/name if the
// port has no name. Objects whose names are not DNS labels are invalid and skipped earlier. If one gets here, its name
// still cannot control a terminal or end the text for nft. If the comment is too long, the end of the Service's name is
// omitted.
func commentOf(id model.PortID) string {
	colon := ""
	if id.Port != "" {
		colon = ":"
	}
	comment := id.Service.Namespace + "/" + id.Service.Name + colon + id.Port
	if len(comment) > maxComment {
		comment = shortened(comment, len(comment)-len(colon)-len(id.Port))
	}
	for i := range len(comment) {
		if !isPlain(comment[i]) {
			return strings.Map(sanitizeRune, comment)
		}
	}
	return comment
}

// shortened omits the end of the name in a comment that is too long, and truncates the rest if it is still too long.
func shortened(comment string, nameEnd int) string {
	const omitted = "..."
	keep := max(0, nameEnd-(len(comment)-maxComment)-len(omitted))
	comment = comment[:keep] + omitted + comment[nameEnd:]
	return comment[:min(len(comment), maxComment)]
}

// sanitizeRune replaces characters that no valid name has.
func sanitizeRune(r rune) rune {
	if r < utf8.RuneSelf && isPlain(byte(r)) {
		return r
	}
	return '?'
}

func isPlain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '-' <= c && c <= ':', c == '_': // - . / 0 to 9 :
		return true
	}
	return false
}
