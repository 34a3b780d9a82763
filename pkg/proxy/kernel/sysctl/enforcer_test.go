package sysctl

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var monday = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// apply checks the desired values once.
func apply(root string, desired ...DesiredValue) (results []Result) {
	var settings []Setting
	for _, value := range desired {
		settings = append(settings, Setting{DesiredValue: value})
	}
	enforcer := NewEnforcer(root, settings...)
	enforcer.Reconcile(monday)
	for _, state := range enforcer.States() {
		results = append(results, state.Result)
	}
	return results
}

// enforcerTest is an enforced setting in a directory in place of /proc/sys.
type enforcerTest struct {
	t        *testing.T
	root     string
	enforcer *Enforcer
	now      time.Time
}

func newEnforcerTest(t *testing.T, text string, edit func(*Setting)) *enforcerTest {
	settingToEnforce := Setting{DesiredValue: DesiredValue{Name: settingName, Value: 1}}
	if edit != nil {
		edit(&settingToEnforce)
	}
	root := tree(t, text)
	return &enforcerTest{t, root, NewEnforcer(root, settingToEnforce), monday}
}

// change sets the value as another program would.
func (h *enforcerTest) change(text string) {
	h.t.Helper()
	if err := os.WriteFile(path(h.root, settingName), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// reconcile returns the outcome of a check, and whether it is reported.
func (h *enforcerTest) reconcile(after time.Duration) (Outcome, bool) {
	h.now = h.now.Add(after)
	isReported := len(h.enforcer.Reconcile(h.now)) > 0
	return h.enforcer.States()[0].Result.Outcome, isReported
}

func (h *enforcerTest) expect(step string, after time.Duration, outcome Outcome, isReported bool) {
	h.t.Helper()
	if got, gotReported := h.reconcile(after); got != outcome || gotReported != isReported {
		h.t.Errorf("%s: outcome %s, reported %v; want %s, %v", step, got, gotReported, outcome, isReported)
	}
}

// The setting is written at each check, and the change is reported once an hour.
func TestAChangedSettingIsWrittenAgain(t *testing.T) {
	h := newEnforcerTest(t, "0", nil)
	h.expect("at first", 0, Written, true)
	h.expect("unchanged", time.Minute, Met, false)
	h.change("0")
	h.expect("changed", time.Minute, Written, true)
	for range 5 {
		h.change("0")
		h.expect("changed again", 10*time.Second, Written, false)
	}
	if text, err := os.ReadFile(path(h.root, settingName)); string(text) != "1" {
		t.Errorf("the kernel has %q (%v), want 1", text, err)
	}
	h.change("0")
	h.expect("an hour later", time.Hour, Written, true)
	want := []State{{
		Setting:  Setting{DesiredValue: DesiredValue{Name: settingName, Value: 1}},
		Result:   Result{Desired: DesiredValue{Name: settingName, Value: 1}, Outcome: Written},
		Restored: 7, RestoredAt: h.now,
	}}
	if diff := cmp.Diff(want, h.enforcer.States(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A setting that is only checked is never written.
func TestCheckOnlySettingIsReportedAndNeverWritten(t *testing.T) {
	h := newEnforcerTest(t, "1", func(s *Setting) { s.CheckOnly = true })
	h.expect("at first", 0, Met, false)
	h.change("0")
	h.expect("changed", time.Minute, Unmet, true)
	since := h.now
	h.expect("still unmet", time.Minute, Unmet, false)
	if got := h.enforcer.States()[0].UnmetSince; !got.Equal(since) {
		t.Errorf("unmet since %s, want %s", got, since)
	}
	h.expect("a day later", 24*time.Hour, Unmet, false)
	h.change("1")
	h.expect("met again", time.Minute, Met, true)
	if got := h.enforcer.States()[0].UnmetSince; !got.IsZero() {
		t.Errorf("unmet since %s, want zero", got)
	}
	if text, err := os.ReadFile(path(h.root, settingName)); string(text) != "1" {
		t.Errorf("the kernel has %q (%v), want 1", text, err)
	}
}

func TestAMissingKernelSettingIsReportedOnce(t *testing.T) {
	h := newEnforcerTest(t, "", nil)
	h.expect("at first", 0, Missing, true)
	h.expect("later", 24*time.Hour, Missing, false)
	h = newEnforcerTest(t, "", func(s *Setting) { s.Optional = true })
	h.expect("optional", 0, Missing, false)
}
