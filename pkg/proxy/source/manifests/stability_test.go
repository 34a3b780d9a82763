package manifests

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// twentyObjects returns Services, and a slice of every fifth, as YAML and as JSON. They are short, because each byte is
// a test.
func twentyObjects() (asYAML, asJSON []string) {
	for i := range 16 {
		asYAML = append(asYAML, fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s%d}\nspec:\n  clusterIP: 10.0.0.%d\n"+
			"  ports:\n  - {name: a, port: 80}\n  - {name: b, port: 81}\n", i, 10+i))
		asJSON = append(asJSON, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d"},`+
			`"spec":{"clusterIP":"10.0.0.%d","ports":[{"port":80}]}}`+"\n", i, 10+i))
		if i%5 > 0 {
			continue
		}
		asYAML = append(asYAML, fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: e%[1]d\n"+
			"  labels: {kubernetes.io/service-name: s%[1]d}\naddressType: IPv4\nports: [{port: 80}]\nendpoints:\n"+
			"- addresses: [10.1.%[1]d.1]\n- addresses: [10.1.%[1]d.2]\n  conditions:\n    ready: false\n", i))
		asJSON = append(asJSON, fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"e%[1]d",`+
			`"labels":{"kubernetes.io/service-name":"s%[1]d"}},"addressType":"IPv4","ports":[{"name":"","port":80}],`+
			`"endpoints":[{"addresses":["10.1.%[1]d.1"]},{"addresses":["10.1.%[1]d.2"]}]}`+"\n", i))
	}
	return asYAML, asJSON
}

// forms returns the same twenty objects in every form that a file may have.
func forms() map[string]string {
	asYAML, asJSON := twentyObjects()
	items := ""
	for _, object := range asYAML {
		items += "- " + strings.ReplaceAll(strings.TrimSuffix(object, "\n"), "\n", "\n  ") + "\n"
	}
	return map[string]string{
		"documents.yaml":  strings.Join(asYAML, "---\n"),
		"kubectl.yaml":    "apiVersion: v1\nitems:\n" + items + "kind: List\n",
		"list.yaml":       "apiVersion: v1\nkind: List\nitems:\n" + items,
		"whole-list.yaml": "apiVersion: v1\nkind: List\nitems: # not taken apart\n" + items,
		"documents.json":  strings.Join(asJSON, ""),
		"list.json":       `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(asJSON, ",") + "]}\n",
	}
}

const coarseStep = 13 // bytes between two truncations where not each is tested

// The text that is written is the current one, or one whose first object differs. Each truncation is tested for the
// forms in which a truncated text may be valid, and for JSON.
func TestTruncatedFileRemovesNothing(t *testing.T) {
	for name, before := range forms() {
		stepSize := coarseStep
		if name == "documents.yaml" || name == "list.yaml" || name == "list.json" {
			stepSize = 1
		}
		t.Run(name, func(t *testing.T) { truncateEverywhere(t, name, before, before, stepSize) })
		another := strings.Replace(before, "10.0.0.10", "10.0.0.99", 1)
		t.Run(name+" changed", func(t *testing.T) { truncateEverywhere(t, name, before, another, coarseStep) })
	}
}

// truncateEverywhere writes a file with one text, then with ever longer beginnings of another one, and then with that
// one as a whole.
func truncateEverywhere(t *testing.T, name, before, after string, stepSize int) {
	f := newTestFolder(t)
	f.folder.isWatched = true
	f.write(name, before)
	f.loadAfter(0)
	applied := maps.Clone(f.state)
	if len(applied) != 20 {
		t.Fatalf("%d objects are active, want 20", len(applied))
	}
	now := time.Duration(0)
	for size := 1; size < len(strings.TrimSpace(after)); size += stepSize {
		f.write(name, after[:size])
		now += stableAfter // since the previous text, so that this one is new each time
		f.loadAfter(now)
		if size%coarseStep == 0 {
			f.loadAfter(now + stableAfter - 1)
		}
		if diff := cmp.Diff(applied, f.state); diff != "" {
			t.Fatalf("after %d of %d bytes, ending in %q (-want +got):\n%s", size, len(after), tail(after[:size]), diff)
		}
		if f.wantProblems(); t.Failed() {
			t.FailNow()
		}
	}
	f.write(name, after)
	changed := f.loadAfter(now + stableAfter)
	if want := after != before; (len(changed) == 1) != want || f.folder.isWaiting() {
		t.Errorf("complete file: changed objects %q, waiting: %t", changed, f.folder.isWaiting())
	}
}

func tail(text string) string { return text[max(0, len(text)-40):] }

// An unchanged file counts regardless of the position at which its text ends: readable objects are served, and missing
// ones are removed, unless a part cannot be read.
func TestAnUnchangedFileCounts(t *testing.T) {
	for name, whole := range forms() {
		t.Run(name, func(t *testing.T) {
			f := newTestFolder(t)
			f.folder.isWatched = true
			f.write(name, whole)
			f.loadAfter(0)
			loaded := f.folder
			for size := 1; size < len(whole); size += 29 {
				f.folder = loaded
				f.write(name, whole[:size])
				f.loadAfter(time.Second)
				if f.loadAfter(time.Second + stableAfter); f.folder.isWaiting() {
					t.Fatalf("%d bytes are not active, although the file is unchanged", size)
				}
				decoded := decode(name, []byte(whole[:size]), convert.View{})
				if !decoded.isComplete && len(f.folder.applied) != 20 {
					t.Fatalf("after %d bytes %d objects are active, want 20, because a part cannot be read", size, len(f.folder.applied))
				}
				if decoded.isComplete && len(f.folder.applied) != len(decoded.objects) {
					t.Fatalf("after %d bytes %d objects are active, and %d are in the file", size, len(f.folder.applied), len(decoded.objects))
				}
				f.state, f.problems = map[string]string{}, nil
			}
		})
	}
}

// Objects after an unreadable position must stay, although the file is truncated for long.
func TestLastingTruncationKeepsUnreadableObjects(t *testing.T) {
	asYAML, _ := twentyObjects()
	f := newTestFolder(t)
	f.folder.isWatched = true
	f.write("a.yaml", strings.Join(asYAML, "---\n"))
	f.loadAfter(0)
	applied := maps.Clone(f.state)
	for i, step := range []string{
		strings.Join(asYAML[:8], "---\n") + "---\nkind: [\n",                     // an unreadable part
		strings.Join(asYAML[:10], "---\n") + "---\na: 'b",                        // another unreadable part
		strings.Join(asYAML[:12], "---\n") + "---\n" + firstLines(asYAML[12], 6), // a single invalid object
	} {
		f.write("a.yaml", step)
		f.loadAfter(time.Duration(i) * 3 * time.Second)
		if i < 2 {
			f.loadAfter(time.Duration(i)*3*time.Second + stableAfter) // it counts, with its errors
		}
		if diff := cmp.Diff(applied, f.state); diff != "" {
			t.Fatalf("step %d removes objects (-want +got):\n%s", i, diff)
		}
	}
}

// firstLines returns the first lines of a Service.
func firstLines(text string, lines int) string {
	return strings.Join(strings.SplitAfter(text, "\n")[:lines], "")
}

func TestStability(t *testing.T) {
	contentsOf := func(names ...string) contents {
		var c contents
		for _, name := range names {
			name, value, _ := strings.Cut(name, "=")
			key := convert.ObjectKey{Kind: convert.Services, Name: model.ObjectName{Namespace: "default", Name: name}}
			c.objects = append(c.objects, objectVersion{key: key, value: value})
		}
		return c
	}
	versionOf := func(size int, names ...string) version { return version{size: size, contents: contentsOf(names...)} }
	missing := contentsOf("c").objects[0].key
	for name, test := range map[string]struct {
		before, now version
		alone       time.Duration
		want        bool
	}{
		"the first version":                     {version{}, versionOf(9, "a"), 0, true},
		"one more object":                       {versionOf(9, "a"), versionOf(18, "a", "b"), 0, true},
		"one object fewer":                      {versionOf(18, "a", "b"), versionOf(9, "a"), 0, false},
		"one object fewer, for long enough":     {versionOf(18, "a", "b"), versionOf(9, "a"), stableAfter, true},
		"one object fewer, not for long enough": {versionOf(18, "a", "b"), versionOf(9, "a"), stableAfter - 1, false},
		"another object, and longer":            {versionOf(9, "a"), versionOf(18, "bbbb"), 0, false},
		"an unreadable object is missing": {
			version{size: 18, contents: contentsOf("a"), missing: []convert.ObjectKey{missing}}, versionOf(20, "a"), 0, false},
		"an unreadable object is back": {
			version{size: 18, contents: contentsOf("a"), missing: []convert.ObjectKey{missing}}, versionOf(20, "a", "c"), 0, true},
		"the last object is shorter":         {versionOf(9, "a", "b=12"), versionOf(8, "a", "b=1"), 0, false},
		"the last object is longer":          {versionOf(9, "a", "b=12"), versionOf(10, "a", "b=123"), 0, true},
		"one before the last is shorter":     {versionOf(9, "a=12", "b"), versionOf(8, "a=1", "b"), 0, true},
		"a comment at the end is removed":    {versionOf(9, "a", "b"), versionOf(5, "a", "b"), 0, true},
		"no objects before and after":        {version{size: 9}, version{size: 5}, 0, true},
		"the same, with the objects swapped": {versionOf(9, "a", "b"), versionOf(9, "b", "a"), 0, true},
	} {
		if got := isStable(&test.before, &test.now, test.alone); got != test.want {
			t.Errorf("%s: isStable() = %t, want %t", name, got, test.want)
		}
	}
}
