package policy

import (
	"errors"
	"strings"
	"testing"
)

func TestMaxLoadIsAPercentageOfTheMean(t *testing.T) {
	for text, want := range map[string]uint64{"100%": 100, "120%": 120, "999%": 999, "1000%": 1000} {
		got, err := ParseMaxLoad(text)
		if got != want || err != nil || FormatMaxLoad(got) != text {
			t.Errorf("ParseMaxLoad(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestWhatIsNoMaxLoadSaysWhatWasMeant(t *testing.T) {
	for text, meant := range map[string]string{
		"1.2": "120%", "1,2": "120%", "1.2x": "120%", "x1.2": "120%", "1.2×": "120%", "120": "120%", "120 %": "120%", " 120% ": "120%",
		"\u00a0120%": "120%", "0120%": "120%", "120.0%": "120%", "119.6%": "120%", `"120%"`: "120%", "'120%'": "120%", "+120%": "220%",
		"20%": "120%", "+20%": "120%", "0.2": "120%", "20": "120%", "2": "200%", "1": "100%", "10": "1000%", "1_000%": "1000%",
		"99%": "100%", "80%": "100%", "0%": "100%", "1001%": "1000%", "99999999999999999999%": "1000%", "1.15": "115%",
		"": "", " ": "", "%": "", "%%": "", "120%%": "", "lots": "", "None": "", "-120%": "", "1.2.3": "", "1e2": "", "0x78%": "",
		"inf": "", "NaN%": "", "１２０%": "", "\xff": "", strings.Repeat("1", 1<<18): "",
	} {
		percent, err := ParseMaxLoad(text)
		fault, isFault := errors.AsType[MaxLoadError](err)
		if percent != 0 || !isFault || fault.Meant != meant {
			t.Errorf("ParseMaxLoad(%.40q) = %d, %.200v; want none, and %q as what was meant", text, percent, err, meant)
			continue
		}
		if _, err := ParseMaxLoad(meant); meant != "" && err != nil {
			t.Errorf("what was meant is wrong, too: %v", err)
		}
		if message := err.Error(); len(message) > 2000 || meant != "" && !strings.HasSuffix(message, `did you mean "`+meant+`"?`) {
			t.Errorf("ParseMaxLoad(%.40q): %.300s", text, message)
		}
	}
}

func FuzzParseMaxLoad(f *testing.F) {
	for _, seed := range []string{"120%", "1.2", "120 %", "1.2x", "", "%", "+20%", "99%", "1e400", "0x1p2", "\xff", "0100%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		percent, err := ParseMaxLoad(text)
		if err == nil {
			if percent < LeastMaxLoad || percent > MostMaxLoad || FormatMaxLoad(percent) != text {
				t.Errorf("ParseMaxLoad(%q) = %d", text, percent)
			}
			return
		}
		fault, isFault := errors.AsType[MaxLoadError](err)
		if !isFault || percent != 0 {
			t.Fatalf("ParseMaxLoad(%q) = %d, %#v", text, percent, err)
		}
		if fault.Meant != "" {
			if _, err := ParseMaxLoad(fault.Meant); err != nil { // so it is not the text itself
				t.Errorf("%q is said to mean %q, which is wrong, too", text, fault.Meant)
			}
		}
	})
}
