package policy

import (
	"strings"
	"testing"
)

func TestParseMaxLoadAccepts(t *testing.T) {
	for text, want := range map[string]uint64{"100%": 100, "120%": 120, "999%": 999, "1000%": 1000} {
		got, err := ParseMaxLoad(text)
		if got != want || err != nil || FormatMaxLoad(got) != text {
			t.Errorf("ParseMaxLoad(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestParseMaxLoadRejects(t *testing.T) {
	for _, text := range []string{
		"1.2", "120", "120 %", " 120% ", "0120%", "120.0%", `"120%"`, "+120%", "-120%", "99%", "0%", "1001%", "99999999999999999999%", "", "%",
		"120%%", "lots", "0x78%", "１２０%", "\xff", strings.Repeat("1", 1<<18),
	} {
		percent, err := ParseMaxLoad(text)
		if percent != 0 || err == nil || len(err.Error()) > 2000 || !strings.HasSuffix(err.Error(), InvalidMaxLoad) {
			t.Errorf("ParseMaxLoad(%.40q) = %d, %.200v", text, percent, err)
		}
	}
}

func FuzzParseMaxLoad(f *testing.F) {
	for _, seed := range []string{"120%", "1.2", "120 %", "1.2x", "", "%", "+20%", "99%", "1e400", "0x1p2", "\xff", "0100%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		percent, err := ParseMaxLoad(text)
		if err == nil && (percent < MinLoadBound || percent > MaxLoadBound || FormatMaxLoad(percent) != text) || err != nil && percent != 0 {
			t.Errorf("ParseMaxLoad(%q) = %d, %v", text, percent, err)
		}
	})
}
