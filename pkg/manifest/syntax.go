package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
)

// linePrefix is the prefix of errors with a line in the YAML library.
var linePrefix = regexp.MustCompile(`^line (\d+): `)

// zeroBasedLine matches errors of the YAML library's parser, which counts lines from 0; its scanner counts from 1.
var zeroBasedLine = regexp.MustCompile(`^did not find expected (<document start>|node content|'-' indicator|key|',' or )`)

// explainSyntaxError returns why a text is not valid YAML, given an error of the YAML library. Its line is counted from 1 in
// the text; it is 1 if the library does not report it.
func explainSyntaxError(text []byte, err error) *ParseError {
	fault := binaryFormatError(text)
	if fault == nil {
		fault = findMissingQuote(text)
	}
	if fault == nil {
		fault = parseYAMLError(err)
	}
	fault.Line = max(fault.Line, 1)
	return fault
}

// parseYAMLError parses an error of the YAML library. The line is 0 if the library does not report it.
func parseYAMLError(err error) *ParseError {
	text := err.Error()
	if typeErr, ok := errors.AsType[*yamlv2.TypeError](err); ok && len(typeErr.Errors) > 0 {
		text = typeErr.Errors[0]
	}
	reason := strings.TrimPrefix(strings.ReplaceAll(text, "\n", ""), "error converting YAML to JSON: ")
	reason = strings.TrimPrefix(reason, "yaml: ")
	match := linePrefix.FindStringSubmatch(reason)
	if match == nil {
		return &ParseError{Reason: reason}
	}
	line, err := strconv.Atoi(match[1])
	if reason = strings.TrimPrefix(reason, match[0]); err != nil {
		return &ParseError{Reason: reason}
	}
	if zeroBasedLine.MatchString(reason) {
		line++
	}
	return &ParseError{Line: line, Reason: reason}
}

const (
	// indicators are characters that must not begin an unquoted text, or have another meaning there (YAML 1.2, rule
	// c-indicator).
	indicators = "*&!|>%@`{}[],?:#-\"'"
	// maxReparseBytes is the maximum size of a text that is parsed again, and maxReparses bounds how often.
	maxReparseBytes = 1 << 20
	maxReparses     = 4
)

// findMissingQuote finds a missing quote, or quotes around only a part of a value, as the cause of a syntax error: if
// another first character makes the error disappear, or a later one appear. It returns nil if there is none.
//
// It uses the YAML 1.2 library, which reports the line of the opening bracket or quote instead of the line where it
// should have been closed.
func findMissingQuote(text []byte) *ParseError {
	if len(text) > maxReparseBytes {
		return nil
	}
	_, err := parseNodes(text)
	if err == nil {
		return nil
	}
	lineNumber := max(parseYAMLError(err).Line, 1)
	if alias := unknownAnchor.FindStringSubmatch(err.Error()); alias != nil {
		lineNumber = lineAt(text, int64(max(0, bytes.Index(text, []byte("*"+alias[1])))))
	}
	start, line := findLine(text, lineNumber)
	for i, reparses := len(line)-1, 0; i >= 0 && reparses < maxReparses; i-- {
		if !mayBeUnquoted(line, i) {
			continue
		}
		reparses++
		changed := slices.Clone(text)
		changed[start+i] = 'x'
		_, nextErr := parseNodes(changed)
		if nextErr != nil && parseYAMLError(nextErr).Line <= lineNumber && !unknownAnchor.MatchString(err.Error()) {
			continue
		}
		if line[i] == '"' || line[i] == '\'' {
			return &ParseError{Line: lineNumber, Reason: fmt.Sprintf("the quotes must enclose the whole value, from %c to %[1]c", line[i])}
		}
		return &ParseError{Line: lineNumber, Reason: mustBeQuoted(line[i])}
	}
	return nil
}

func mustBeQuoted(first byte) string {
	reason := fmt.Sprintf(`the value begins with "%c", which means something else in YAML; quote it`, first)
	if first == '[' || first == '{' {
		reason += ", or close the bracket"
	}
	return reason
}

// unknownAnchor matches the error for an unknown alias, which has no line.
var unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)

// findLine returns the line with a number, counted from 1, and its offset.
func findLine(text []byte, lineNumber int) (start int, line []byte) {
	for ; lineNumber > 1; lineNumber-- {
		end := bytes.IndexByte(text[start:], '\n')
		if end < 0 {
			break
		}
		start += end + 1
	}
	line, _, _ = bytes.Cut(text[start:], []byte("\n"))
	return start, line
}

// mayBeUnquoted reports whether an unquoted text with a reserved first character may begin at a position in a line. The
// double braces of a template do not count.
func mayBeUnquoted(line []byte, i int) bool {
	around := line[max(0, i-1):min(len(line), i+2)]
	if strings.IndexByte(indicators, line[i]) < 0 || bytes.Contains(around, []byte("{{")) {
		return false
	}
	prefix := bytes.TrimRight(line[:i], " \t")
	if len(prefix) == 0 {
		return true
	}
	last, isSeparated := prefix[len(prefix)-1], len(prefix) < i
	return strings.IndexByte(",[{", last) >= 0 || isSeparated && (last == ':' || last == '-')
}
