package sanitize

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/hostile"
)

func TestFprintfEscapesArguments(t *testing.T) {
	type name string
	for want, args := range map[string][]any{
		"a\tb\n":               {"%s\t%s\n", "a", "b"},
		`a\nb \x1b[1m` + "\n":  {"%s %s\n", "a\nb", name("\x1b[1m")},
		`a\tb` + "\n":          {"%s\n", errors.New("a\tb")},
		`[a\nb]` + "\n":        {"%v\n", []string{"a\nb"}},
		"3 0.50 true 1m0s\n":   {"%d %.2f %t %s\n", 3, 0.5, true, time.Minute},
		"   Zürich → x  ✗ ±\n": {"%9s %s\n", "Zürich", "→ x  ✗ ±"},
		`"node-1"` + "\n":      {"%q\n", "node-1"},
		"<nil>\n":              {"%v\n", nil},
	} {
		var got strings.Builder
		if _, err := Fprintf(&got, args[0].(string), args[1:]...); err != nil || got.String() != want {
			t.Errorf("%q: printed %q (%v), want %q", args, got.String(), err, want)
		}
	}
}

func TestTruncate(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a", MaxShort):         strings.Repeat("a", MaxShort),
		strings.Repeat("a", MaxShort+1):       strings.Repeat("a", MaxShort) + "...",
		strings.Repeat("a", MaxShort-1) + "ü": strings.Repeat("a", MaxShort-1) + "...",
		"a\nb\x9b":                            `a\nb\x9b`,
	} {
		if got := Truncate(text); got != want {
			t.Errorf("Truncate(%.20q) = %q, want %q", text, got, want)
		}
	}
}

func TestEscapeRemovesTerminalControls(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nü → \u00a0": "a\tb\nü → \u00a0", "\x1b[1m\x7f\r\x00": `\u001b[1m\u007f\u000d\u0000`,
		"\u009b\u202e\u2028\u061c": `\u009b\u202e\u2028\u061c`,
		"\x9b1m\xff":               `\x9b1m\xff`, "\ufffd": "\ufffd", "": "",
	} {
		if got, rest := Escape([]byte(text)); string(got) != want || len(rest) > 0 {
			t.Errorf("Escape(%q) = %q, %q, want %q", text, got, rest, want)
		}
	}
	if got, rest := Escape([]byte("a→"[:3])); string(got) != "a" || string(rest) != "→"[:2] {
		t.Errorf("incomplete character: %q, %q", got, rest)
	}
}

// FuzzEscape checks that JSON keeps its meaning, and that safe text is not changed.
func FuzzEscape(f *testing.F) {
	f.Add(hostile.Text, "a\x9b")
	f.Add("→\u0085\\\"\U000e0001", "")
	f.Fuzz(func(t *testing.T, text, raw string) {
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		escaped, rest := Escape(encoded)
		var want, got string
		if json.Unmarshal(encoded, &want) != nil || json.Unmarshal(escaped, &got) != nil || got != want || len(rest) > 0 {
			t.Errorf("%q: escaped %q, decoded %q", text, escaped, got)
		}
		for _, safe := range []string{string(escaped), Text(raw), Text(text), Truncate(raw)} {
			if found := hostile.Found(safe + "\n"); found != "" && !strings.HasPrefix(strings.TrimSpace(raw), hostile.Line) &&
				!strings.HasPrefix(strings.TrimSpace(text), hostile.Line) {
				t.Errorf("%q: %s", safe, found)
			}
			if again, _ := Escape([]byte(safe)); string(again) != safe {
				t.Errorf("%q: escaped twice: %q", safe, again)
			}
		}
	})
}
