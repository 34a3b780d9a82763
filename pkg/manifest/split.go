package manifest

import (
	"bytes"
	"iter"
)

// chunk is the text of one YAML document, with its first line in the file, counted from 1.
type chunk struct {
	line int
	text []byte
}

// syntaxError returns an error of the YAML library as a ParseError with the line in the file.
func (c chunk) syntaxError(err error) *ParseError {
	fault := explainSyntaxError(c.text, err)
	fault.Line += c.line - 1
	return fault
}

// splitYAML yields the documents of a YAML stream, each with its leading "---".
//
// It splits before parsing, so that an invalid document does not affect the others. This is safe because YAML forbids a
// line that begins with a marker inside any scalar, including quoted ones (YAML 1.2, rule c-forbidden).
func splitYAML(text []byte) iter.Seq[chunk] {
	return func(yield func(chunk) bool) {
		start, startLine := 0, 1
		offset, line := 0, 1
		for offset < len(text) {
			end := len(text)
			if i := bytes.IndexByte(text[offset:], '\n'); i >= 0 {
				end = offset + i + 1
			}
			cut := -1
			switch {
			case isMarker(text[offset:end], "---"):
				cut = offset
			case isMarker(text[offset:end], "..."):
				cut = end
			}
			if cut >= 0 && cut > start {
				if !yield(chunk{startLine, text[start:cut]}) {
					return
				}
				start, startLine = cut, line
				if cut == end {
					startLine++
				}
			}
			offset, line = end, line+1
		}
		if start < len(text) {
			yield(chunk{startLine, text[start:]})
		}
	}
}

// isMarker reports whether a line begins with a document marker: the three characters, then white space or nothing.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\n' || rest[0] == '\r')
}

// content returns a document from its first significant character, after markers, directives, comments and white space.
// It is empty for an empty document.
func content(text []byte) []byte {
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line = text[:i+1]
		}
		rest := line
		if isMarker(line, "---") || isMarker(line, "...") {
			rest = line[3:]
		}
		rest = bytes.TrimSpace(rest)
		if len(rest) > 0 && rest[0] != '#' && rest[0] != '%' {
			return text[bytes.Index(line, rest):]
		}
		text = text[len(line):]
	}
	return nil
}

// unifyLineBreaks replaces Windows and classic Mac OS line breaks by "\n", as YAML does.
func unifyLineBreaks(text []byte) []byte {
	if bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
}
