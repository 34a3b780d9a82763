package events

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNotes(t *testing.T) {
	for title, test := range map[string]struct{ given, want string }{
		"a plain sentence stays":             {"nothing is wrong", "nothing is wrong"},
		"so do other alphabets":              {"später 後で", "später 後で"},
		"a line break is shown":              {"one\ntwo", `one\ntwo`},
		"an escape sequence is shown":        {"\x1b[31mred", `\x1b[31mred`},
		"what is no UTF-8 is shown":          {"a\xffb", `a\xffb`},
		"a hidden direction mark is shown":   {"a\u202eb", `a\u202eb`},
		"1,024 bytes stay":                   {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"what is more is cut":                {strings.Repeat("x", 1025), strings.Repeat("x", 1021) + "..."},
		"no character is cut in two":         {strings.Repeat("ä", 513), strings.Repeat("ä", 510) + "..."},
		"what grows when it is shown is cut": {strings.Repeat("\n", 1000), strings.Repeat(`\n`, 510) + `\...`},
	} {
		t.Run(title, func(t *testing.T) {
			if got := noteOf(test.given); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func FuzzNotesAreAsTheAPIServerTakesThem(f *testing.F) {
	for _, seed := range []string{"", "plain", "\n", "\xff", strings.Repeat("ä", 1000), strings.Repeat("\x00", 2000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		got := noteOf(given)
		if len(got) > maxNote || !utf8.ValidString(got) || strings.IndexFunc(got, isUnprintable) >= 0 {
			t.Errorf("noteOf(%q) = %q, which has %d bytes", given, got, len(got))
		}
		if again := noteOf(got); again != got {
			t.Errorf("a note that is safe became %q, and was %q", again, got)
		}
	})
}
