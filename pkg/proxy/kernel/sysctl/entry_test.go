package sysctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const settingName = "net.netfilter.nf_conntrack_max"

// tree returns a directory in place of /proc/sys that has one setting, if the text is not empty.
func tree(t *testing.T, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	if text == "" {
		return root
	}
	if err := os.MkdirAll(filepath.Join(root, "net/netfilter"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path(root, settingName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestASettingIsWrittenOnlyIfItDiffers(t *testing.T) {
	exactly, atLeast := DesiredValue{Name: settingName, Value: 100}, DesiredValue{Name: settingName, Value: 100, AtLeast: true}
	atLeastOrUnlimited := DesiredValue{Name: settingName, Value: 100, AtLeast: true, ZeroIsUnlimited: true}
	tests := map[string]struct {
		text    string
		want    DesiredValue
		outcome Outcome
		before  int64
		after   string
	}{
		"the same":               {"100\n", exactly, Met, 100, "100\n"},
		"less":                   {"99\n", exactly, Written, 99, "100"},
		"more":                   {"101\n", exactly, Written, 101, "100"},
		"at least, and the same": {"100\n", atLeast, Met, 100, "100\n"},
		"at least, and more":     {"101\n", atLeast, Met, 101, "101\n"},
		"at least, and less":     {"99\n", atLeast, Written, 99, "100"},
		"at least, and zero":     {"0\n", atLeast, Written, 0, "100"},
		"unlimited":              {"0\n", atLeastOrUnlimited, Met, 0, "0\n"},
		"missing in the kernel":  {"", exactly, Missing, 0, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := tree(t, test.text)
			got := apply(root, test.want)
			if diff := cmp.Diff([]Result{{Desired: test.want, Outcome: test.outcome, Previous: test.before}}, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			after, err := os.ReadFile(path(root, settingName))
			if string(after) != test.after || (err != nil) != (test.text == "") {
				t.Errorf("the setting is %q afterwards (%v), want %q", after, err, test.after)
			}
		})
	}
}

func TestCheckingChangesNothing(t *testing.T) {
	root := tree(t, "99\n")
	want := DesiredValue{Name: settingName, Value: 100}
	if diff := cmp.Diff([]Result{{Desired: want, Outcome: Unmet, Previous: 99}}, Check(root, want)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if after, err := os.ReadFile(path(root, settingName)); string(after) != "99\n" {
		t.Errorf("the setting is %q afterwards (%v), want it unchanged", after, err)
	}
}

func TestASettingThatIsNotANumberStays(t *testing.T) {
	root := tree(t, "4096 87380 6291456\n")
	got := apply(root, DesiredValue{Name: settingName, Value: 1})
	if got[0].Outcome != Unmet || got[0].Err == nil || !strings.HasPrefix(got[0].Err.Error(), "read "+settingName+": ") {
		t.Errorf("got %+v, want an error that names the setting", got[0])
	}
	if after, err := os.ReadFile(path(root, settingName)); string(after) != "4096 87380 6291456\n" {
		t.Errorf("the setting is %q afterwards (%v), want it unchanged", after, err)
	}
}

func TestTheAdviceIsACommand(t *testing.T) {
	const want = "on the node itself: sysctl -w net.ipv4.ip_forward=1"
	if got := ForwardingIPv4.Advice(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
