package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

func FuzzParseKeys(f *testing.F) {
	for _, seed := range []string{
		"", " ", ",", "*", "*,*", "rack", "kubernetes.io/hostname, topology.kubernetes.io/zone, *", "a b", "rack,rack", "a/b/c",
		"Example.com/rack", "\xff", " \u00a0rack", manyKeys(17), longestKey(),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		keys, err := ParseKeys(value)
		if err != nil {
			checkRejected(t, value, keys, err)
			return
		}
		checkAccepted(t, value, keys)
		again, err := ParseKeys(joinKeys(keys))
		if err != nil || !slices.Equal(again, keys) {
			t.Errorf("%q parses to %q, which parses to %q, %v", value, keys, again, err)
		}
	})
}

// checkRejected checks an error: it comes without keys, and has a message for every invalid entry.
func checkRejected(t *testing.T, value string, keys []Key, err error) {
	var entryErrors EntryErrors
	if keys != nil || !errors.As(err, &entryErrors) || len(entryErrors) == 0 || len(entryErrors) > MaxKeys {
		t.Fatalf("ParseKeys(%q) = %q, %#v", value, keys, err)
	}
	for _, entryError := range entryErrors {
		if entryError.Position > 0 && !strings.Contains(value, entryError.Entry) {
			t.Errorf("ParseKeys(%q) rejects %q, which is not in it", value, entryError.Entry)
		}
		if entryError.Rule == "" || entryError.Error() == "" {
			t.Errorf("ParseKeys(%q) gives %#v", value, entryError)
		}
	}
}

// checkAccepted checks the rules of KEP-536, in a second implementation.
func checkAccepted(t *testing.T, value string, keys []Key) {
	if len(keys) < 1 || len(keys) > MaxKeys {
		t.Errorf("ParseKeys(%q) accepts %d keys", value, len(keys))
	}
	for i, key := range keys {
		if slices.Contains(keys[:i], key) {
			t.Errorf("ParseKeys(%q) accepts %q twice", value, key)
		}
		if key == AnyNode && i < len(keys)-1 {
			t.Errorf("ParseKeys(%q) accepts * before the end", value)
		}
		if key != AnyNode && content.IsLabelKey(string(key)) != nil {
			t.Errorf("ParseKeys(%q) accepts %q", value, key)
		}
	}
}
