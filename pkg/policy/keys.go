package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// MaxKeys is the maximum number of topology keys of a Service (KEP-536).
const MaxKeys = 16

// ParseKeys parses a comma-separated list of topology keys, the most preferred first. Spaces around a key are ignored.
//
// The rules are KEP-536's: 1 to 16 keys, each a label key or `*`, no duplicates, `*` only last. The error is an
// EntryErrors with every invalid entry.
func ParseKeys(value string) ([]Key, error) {
	if strings.TrimSpace(value) == "" {
		return nil, EntryErrors{{
			Rule:   NotEmpty,
			Cause:  "the list of topology keys is empty",
			Remedy: `list node label keys, the most preferred first, such as "topology.kubernetes.io/zone, *", or remove the annotation`,
		}}
	}
	// Count before splitting, because an annotation may be 256 KiB of commas.
	if count := strings.Count(value, ",") + 1; count > MaxKeys {
		return nil, EntryErrors{{
			Rule:   AtMostMaxKeys,
			Cause:  fmt.Sprintf("the list has %d topology keys, and at most %d are allowed", count, MaxKeys),
			Remedy: "remove the least preferred ones",
		}}
	}
	return parseEntries(strings.Split(value, ","))
}

func parseEntries(entries []string) ([]Key, error) {
	var errs EntryErrors
	keys := make([]Key, 0, len(entries))
	for i, entry := range entries {
		key := Key(strings.TrimSpace(entry))
		if err, found := checkEntry(key, keys, i == len(entries)-1); found {
			err.Entry, err.Position = string(key), i+1
			errs = append(errs, err)
		}
		keys = append(keys, key)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return keys, nil
}

// checkEntry returns the first rule that a key breaks, given the keys before it.
func checkEntry(key Key, earlier []Key, isLast bool) (EntryError, bool) {
	if key == "" {
		return EntryError{Rule: NotEmpty, Cause: "is empty", Remedy: "remove the extra comma, or write the missing key"}, true
	}
	if position := slices.Index(earlier, key); position >= 0 {
		return EntryError{
			Rule:   Unique,
			Cause:  fmt.Sprintf("is the same key as entry %d", position+1),
			Remedy: "list each key once",
		}, true
	}
	if key == AnyNode {
		return EntryError{
			Rule:   AnyNodeLast,
			Cause:  "matches every endpoint, so the keys after it would never be tried",
			Remedy: "move it to the end",
		}, !isLast
	}
	if reasons := content.IsLabelKey(string(key)); len(reasons) > 0 {
		return EntryError{
			Rule:   LabelKey,
			Cause:  "is not a label key: " + strings.Join(reasons, "; "),
			Remedy: remedyFor(key),
		}, true
	}
	return EntryError{}, false
}

// remedyFor returns what to write instead of a text that is not a label key.
func remedyFor(key Key) string {
	if strings.ContainsAny(string(key), "; \t\n[]\"'|") {
		return `separate keys with commas, and put neither quotes nor brackets around them`
	}
	return `write the key of a node label, such as "topology.kubernetes.io/zone", or "*"`
}
