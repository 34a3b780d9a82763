package events

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 5000, time.UTC)

func TestAnEventAboutAService(t *testing.T) {
	got := objectOf(rejected(web, "why"), "node-1", noon)
	want := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: got.Name, Namespace: "shop"},
		EventTime:           metav1.NewMicroTime(noon),
		ReportingController: "vicinity.dev/proxy",
		ReportingInstance:   "node-1",
		Action:              "Refuse",
		Reason:              "Invalid",
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", UID: "1-2-3"},
		Note:                "Nodes keep the last known good version of this object, if they have one: why",
		Type:                "Warning",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Event (-want +got):\n%s", diff)
	}
}

func TestAnEventAboutANodeIsInTheDefaultNamespace(t *testing.T) {
	got := objectOf(Started("node-1", "v1"), "node-1", noon)
	regarding := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "node-1"}
	if got.Namespace != "default" || got.Regarding != regarding || got.Type != "Normal" {
		t.Errorf("got type %s about %v in namespace %q, want a Normal one about %v in default", got.Type, got.Regarding, got.Namespace, regarding)
	}
}

func TestEveryKindHasItsAPIVersion(t *testing.T) {
	for kind, want := range map[string]string{
		"Service": "v1", "Node": "v1", "EndpointSlice": "discovery.k8s.io/v1", "ServiceCIDR": "networking.k8s.io/v1",
		"ServiceDemand": "vicinity.dev/v1alpha1",
	} {
		got := objectOf(rejected(Reference{Kind: kind, Name: "a"}, "why"), "node-1", noon).Regarding
		if got.APIVersion != want || got.Kind != kind {
			t.Errorf("kind %s of API version %s, want %s of %s", got.Kind, got.APIVersion, kind, want)
		}
	}
}

func TestALongNodeNameFitsIntoTheReportingInstance(t *testing.T) {
	name := strings.Repeat("n", 253) // as long as the API server allows
	if got := objectOf(Started(name, "v1"), name, noon).ReportingInstance; len(got) != 128 || !strings.HasPrefix(got, "nnn") {
		t.Errorf("%q has %d bytes, want 128", got, len(got))
	}
}

func TestNames(t *testing.T) {
	base := nameOf(rejected(web, "why"), "node-1", noon)
	if faults := validation.IsDNS1123Subdomain(base); len(faults) > 0 {
		t.Errorf("%s is not a valid object name: %v", base, faults)
	}
	recreated, moved := web, web
	recreated.UID = "7-8-9"
	moved.Namespace, moved.Name = "sho", "pweb"
	otherReason := rejected(web, "why")
	otherReason.Reason = "Otherwise"
	local := rejected(web, "why")
	local.Local = true
	for title, test := range map[string]struct {
		one, other string
		same       bool
	}{
		"another node and time: same":                      {base, nameOf(rejected(web, "why"), "node-2", noon.Add(time.Hour)), true},
		"another sentence: different":                      {base, nameOf(rejected(web, "because"), "node-1", noon), false},
		"another reason with the same sentence: different": {base, nameOf(otherReason, "node-1", noon), false},
		"another object of the same name: different":       {base, nameOf(rejected(recreated, "why"), "node-1", noon), false},
		"another split of the same letters: different":     {base, nameOf(rejected(moved, "why"), "node-1", noon), false},
		"about a node, reported by another one: different": {nameOf(local, "node-1", noon), nameOf(local, "node-2", noon), false},
		"about a node, reported again: different":          {nameOf(local, "node-1", noon), nameOf(local, "node-1", noon.Add(1)), false},
		"about a node, retried: same":                      {nameOf(local, "node-1", noon), nameOf(local, "node-1", noon), true},
	} {
		if (test.one == test.other) != test.same {
			t.Errorf("%s: got %s and %s", title, test.one, test.other)
		}
	}
}

func TestNotes(t *testing.T) {
	for title, test := range map[string]struct{ given, want string }{
		"a plain sentence":              {"nothing is wrong", "nothing is wrong"},
		"other alphabets":               {"später 後で", "später 後で"},
		"a line break is escaped":       {"one\ntwo", `one\ntwo`},
		"an escape sequence is escaped": {"\x1b[31mred", `\x1b[31mred`},
		"invalid UTF-8 is escaped":      {"a\xffb", `a\xffb`},
		"a direction mark is escaped":   {"a\u202eb", `a\u202eb`},
		"1,024 bytes are kept":          {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"more bytes are truncated":      {strings.Repeat("x", 1025), strings.Repeat("x", 1021) + "..."},
		"characters are kept whole":     {strings.Repeat("ä", 513), strings.Repeat("ä", 510) + "..."},
		"escaped text is truncated":     {strings.Repeat("\n", 1000), strings.Repeat(`\n`, 510) + `\...`},
	} {
		t.Run(title, func(t *testing.T) {
			if got := truncateNote(test.given); got != test.want {
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
		got := truncateNote(given)
		if len(got) > maxNote || !utf8.ValidString(got) || strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("truncateNote(%q) = %q, which has %d bytes", given, got, len(got))
		}
		if again := truncateNote(got); again != got {
			t.Errorf("truncateNote changed a valid note to %q; it was %q", again, got)
		}
	})
}
