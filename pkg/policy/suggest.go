package policy

import (
	"slices"
	"strings"
	"unicode"
)

// formerNames maps former names of flags and configuration fields to the current ones.
var formerNames = map[string][]string{
	"account":           {"traffic-accounting", "trafficAccounting"},
	"clients":           {"demand-source"},
	"default-clients":   {"default-demand-source"},
	"defaultClients":    {"defaultDemandSource"},
	"demand-account":    {"demand-service-account"},
	"min-near":          {"min-in-zone"},
	"node-topology":     {"node-topology-source"},
	"nodeTopology":      {"nodeTopologySource"},
	"unreachable-nodes": {"unreachable-node-mode"},
	"unreachableNodes":  {"unreachableNodeMode"},
}

// Suggest returns which of the candidates was probably meant by a word. It tries, in this order: the new name of a
// setting; a candidate that differs in case, spaces or punctuation; a typo; the singular or plural; another prefix
// before the last slash; a candidate that begins the word. It returns the first match, or "" if no candidate is
// similar.
func Suggest(word string, candidates ...string) string {
	if len(word) > maxQuoted {
		return ""
	}
	letters := lettersOf(word)
	for _, matches := range []func(string) bool{
		func(other string) bool { return slices.Contains(formerNames[word], other) },
		func(other string) bool { return letters != "" && letters == lettersOf(other) },
		func(other string) bool { return IsTypo(letters, lettersOf(other)) },
		func(other string) bool { return isSameOrTypo(singular(letters), singular(lettersOf(other))) },
		func(other string) bool {
			return lettersOf(lastSegment(word)) != "" && lettersOf(lastSegment(word)) == lettersOf(lastSegment(other))
		},
		func(other string) bool { return IsTypo(lettersOf(lastSegment(word)), lettersOf(lastSegment(other))) },
		func(other string) bool { return isWordPrefixOf(other, word) },
	} {
		for _, other := range candidates {
			if other != word && matches(other) {
				return other
			}
		}
	}
	return ""
}

// lettersOf returns a word in lower case, without spaces, dashes and underscores.
func lettersOf(word string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n-_", r) {
			return -1
		}
		return r
	}, strings.ToLower(word))
}

// singular returns a word without its plural ending, if it has one. The word is in the form of lettersOf.
func singular(letters string) string {
	if stem, isPlural := strings.CutSuffix(letters, "ies"); isPlural {
		return stem + "y"
	}
	return strings.TrimSuffix(letters, "s")
}

func isSameOrTypo(a, b string) bool { return a != "" && a == b || IsTypo(a, b) }

// isWordPrefixOf reports whether a name consists of the given words and more: account-keys and accountKeys begin with
// account.
func isWordPrefixOf(words, name string) bool {
	rest, ok := strings.CutPrefix(name, words)
	return ok && words != "" && rest != "" && (rest[0] == '-' || unicode.IsUpper(rune(rest[0])))
}

// lastSegment returns the part after the last slash.
func lastSegment(word string) string { return word[strings.LastIndexByte(word, '/')+1:] }

// IsTypo reports whether two words differ at one position by at most two letters: omitted, added, mistyped or swapped.
// If both letters are replaced it is another word: internalTrafficPolicy is not a typo of externalTrafficPolicy. Words
// of less than four letters are too short to compare.
func IsTypo(a, b string) bool {
	const minLength, maxLetters = 4, 2
	if min(len(a), len(b)) < minLength {
		return false
	}
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	isOtherWord := len(a) == maxLetters && len(b) == maxLetters && (a[0] != b[1] || a[1] != b[0])
	return max(len(a), len(b)) <= maxLetters && !isOtherWord
}
