package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseKeysAccepts(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []Key
	}{
		"one key":                          {"topology.kubernetes.io/zone", []Key{Zone}},
		"only *":                           {"*", []Key{AnyNode}},
		"a key without a prefix":           {"rack", []Key{"rack"}},
		"an arbitrary prefix":              {"example.com/rack", []Key{"example.com/rack"}},
		"no spaces":                        {"kubernetes.io/hostname,*", []Key{Hostname, AnyNode}},
		"spaces, tabs and newlines around": {" \tkubernetes.io/hostname ,\n * \n", []Key{Hostname, AnyNode}},
		"keys that differ only in case":    {"Rack, rack", []Key{"Rack", "rack"}},
		"sixteen keys":                     {manyKeys(16), manyKeyList(16)},
		"the longest possible key":         {longestKey(), []Key{Key(longestKey())}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseKeys(test.value)
			if err != nil {
				t.Fatalf("ParseKeys(%q): %v", test.value, err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ParseKeys(%q) differs (-want +got):\n%s", test.value, diff)
			}
		})
	}
}

// brokenRule is the part of an EntryError that is not prose.
type brokenRule struct {
	Rule     Rule
	Position int
	Entry    string
}

func TestParseKeysRejects(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []brokenRule
	}{
		"an empty text":                       {"", []brokenRule{{NotEmpty, 0, ""}}},
		"only spaces":                         {" \t\n", []brokenRule{{NotEmpty, 0, ""}}},
		"only a comma":                        {",", []brokenRule{{NotEmpty, 1, ""}, {NotEmpty, 2, ""}}},
		"a comma at the end":                  {"rack,", []brokenRule{{NotEmpty, 2, ""}}},
		"two commas in the middle":            {"rack, ,zone", []brokenRule{{NotEmpty, 2, ""}}},
		"seventeen keys":                      {manyKeys(17), []brokenRule{{AtMostMaxKeys, 0, ""}}},
		"many commas":                         {strings.Repeat(",", 1<<18), []brokenRule{{AtMostMaxKeys, 0, ""}}},
		"a key twice":                         {"rack, zone, rack", []brokenRule{{Unique, 3, "rack"}}},
		"*, not last":                         {"rack, *, zone", []brokenRule{{AnyNodeLast, 2, "*"}}},
		"*, twice":                            {"*, *", []brokenRule{{AnyNodeLast, 1, "*"}, {Unique, 2, "*"}}},
		"a space inside a key":                {"a b", []brokenRule{{LabelKey, 1, "a b"}}},
		"a wildcard inside a key":             {"topology.kubernetes.io/*", []brokenRule{{LabelKey, 1, "topology.kubernetes.io/*"}}},
		"two slashes":                         {"a/b/c", []brokenRule{{LabelKey, 1, "a/b/c"}}},
		"no name after the slash":             {"example.com/", []brokenRule{{LabelKey, 1, "example.com/"}}},
		"no prefix before the slash":          {"/rack", []brokenRule{{LabelKey, 1, "/rack"}}},
		"a prefix that is not a DNS name":     {"Example.com/rack", []brokenRule{{LabelKey, 1, "Example.com/rack"}}},
		"a name that is too long":             {strings.Repeat("a", 64), []brokenRule{{LabelKey, 1, strings.Repeat("a", 64)}}},
		"keys separated by semicolons":        {"rack;zone", []brokenRule{{LabelKey, 1, "rack;zone"}}},
		"a JSON list, as in the former field": {`["rack"]`, []brokenRule{{LabelKey, 1, `["rack"]`}}},
		"invalid UTF-8":                       {"\xff\x00", []brokenRule{{LabelKey, 1, "\xff\x00"}}},
		"several errors":                      {"a b, rack, rack, ", []brokenRule{{LabelKey, 1, "a b"}, {Unique, 3, "rack"}, {NotEmpty, 4, ""}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			keys, err := ParseKeys(test.value)
			var entryErrors EntryErrors
			if !errors.As(err, &entryErrors) {
				t.Fatalf("ParseKeys(%.80q) = %v, %v; want EntryErrors", test.value, keys, err)
			}
			var got []brokenRule
			for _, entryError := range entryErrors {
				if entryError.Cause == "" || entryError.Remedy == "" {
					t.Errorf("%+v lacks a cause or a remedy", entryError)
				}
				got = append(got, brokenRule{entryError.Rule, entryError.Position, entryError.Entry})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ParseKeys(%.80q) differs (-want +got):\n%s", test.value, diff)
			}
		})
	}
}

func TestErrorsReadAsSentences(t *testing.T) {
	_, err := ParseKeys("a/b/c,, " + manyKeys(2) + ", key-0")
	want := `entry 1 "a/b/c" is not a label key: a valid label key must consist of alphanumeric characters`
	if !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error is %q, want the prefix %q", err, want)
	}
	want = `. entry 2 "" is empty; remove the extra comma, or write the missing key` +
		`. entry 5 "key-0" is the same key as entry 3; list each key once`
	if !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error is %q, want the suffix %q", err, want)
	}
}

func TestWrongSeparatorsAreReported(t *testing.T) {
	for _, value := range []string{"rack;zone", "rack zone", `["rack", "zone"]`, "rack\nzone", "'rack'"} {
		_, err := ParseKeys(value)
		if err == nil || !strings.Contains(err.Error(), "separate keys with commas") {
			t.Errorf("ParseKeys(%q): error %v, want the remedy for separators", value, err)
		}
	}
	if _, err := ParseKeys("a/b/c"); err == nil || strings.Contains(err.Error(), "commas") {
		t.Errorf("error for a/b/c: %v, want one without commas", err)
	}
}

func TestMessagesTruncateLongEntries(t *testing.T) {
	_, err := ParseKeys(strings.Repeat("x", 1<<18))
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("the message about a huge entry has %d bytes, want 1 to 1000", len(err.Error()))
	}
}

func manyKeys(count int) string {
	return joinKeys(manyKeyList(count))
}

func manyKeyList(count int) []Key {
	keys := make([]Key, count)
	for i := range keys {
		keys[i] = Key("key-" + string(rune('0'+i%10)) + strings.Repeat("x", i/10))
	}
	return keys
}

// longestKey has a prefix of 253 characters and a name of 63.
func longestKey() string {
	return strings.Repeat("a.", 126) + "a/" + strings.Repeat("b", 63)
}

// joinKeys formats keys as the value of an annotation.
func joinKeys(keys []Key) string {
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = string(key)
	}
	return strings.Join(parts, ", ")
}
