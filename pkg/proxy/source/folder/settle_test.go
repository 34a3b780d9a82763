package folder

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// twentyObjects are Services, and a slice of every fifth, as YAML and as JSON. They are short, because each byte is a
// test.
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

// forms are the same twenty objects in every form that a file may have.
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

// TestNoCutOfAFileTakesAnythingAway while it is written, with another object at its beginning than before.
func TestNoCutOfAFileTakesAnythingAway(t *testing.T) {
	for name, before := range forms() {
		t.Run(name, func(t *testing.T) {
			f := newTestFolder(t)
			f.folder.settle = settleTime
			f.write(name, before)
			f.loadAfter(0)
			inForce := maps.Clone(f.state)
			if len(inForce) != 20 {
				t.Fatalf("%d objects are in force, want 20", len(inForce))
			}
			after := strings.Replace(before, "10.0.0.10", "10.0.0.99", 1)
			now := time.Duration(0)
			for size := 1; size < len(strings.TrimSpace(after)); size += 13 {
				f.write(name, after[:size])
				now += settleTime // since the text before: so this one is new each time
				f.loadAfter(now)
				f.loadAfter(now + settleTime - 1)
				if diff := cmp.Diff(inForce, f.state); diff != "" {
					t.Fatalf("after %d of %d bytes (-want +got):\n%s", size, len(after), diff)
				}
				if f.wantProblems(); t.Failed() {
					t.FailNow()
				}
			}
			f.write(name, after)
			f.loadAfter(now + settleTime)
			if changed := f.loadAfter(now + 2*settleTime); len(changed) != 1 {
				t.Errorf("when the file is whole %q change", changed)
			}
		})
	}
}

// TestAFileThatIsLeftAloneCounts, wherever its text ends: readable objects are served, and missing ones are gone,
// unless a part cannot be read.
func TestAFileThatIsLeftAloneCounts(t *testing.T) {
	for name, whole := range forms() {
		t.Run(name, func(t *testing.T) {
			f := newTestFolder(t)
			f.folder.settle = settleTime
			f.write(name, whole)
			f.loadAfter(0)
			loaded := f.folder
			for size := 1; size < len(whole); size += 29 {
				f.folder = loaded
				f.write(name, whole[:size])
				f.loadAfter(time.Second)
				f.loadAfter(time.Second + settleTime)
				there := decode(name, []byte(whole[:size]), convert.View{})
				if !there.isComplete && len(f.folder.inForce) != 20 {
					t.Fatalf("after %d bytes %d objects are in force; some cannot be read, so that none may be gone", size, len(f.folder.inForce))
				}
				if there.isComplete && len(f.folder.inForce) != len(there.claims) {
					t.Fatalf("after %d bytes %d objects are in force, and %d in the file", size, len(f.folder.inForce), len(there.claims))
				}
				f.state, f.problems = map[string]string{}, nil
			}
		})
	}
}

// TestAFileThatStopsInTheMiddleForLongLosesNothingThatComesLater: 100 Services became 32, because the objects behind a place
// that could not be read were forgotten.
func TestAFileThatStopsInTheMiddleForLongLosesNothingThatComesLater(t *testing.T) {
	asYAML, _ := twentyObjects()
	f := newTestFolder(t)
	f.folder.settle = settleTime
	f.write("a.yaml", strings.Join(asYAML, "---\n"))
	f.loadAfter(0)
	inForce := maps.Clone(f.state)
	for i, step := range []string{
		strings.Join(asYAML[:8], "---\n") + "---\nkind: [\n",                     // some cannot be read
		strings.Join(asYAML[:10], "---\n") + "---\na: 'b",                        // likewise
		strings.Join(asYAML[:12], "---\n") + "---\n" + cutService(asYAML[12], 6), // an object that is refused, and no other
	} {
		f.write("a.yaml", step)
		f.loadAfter(time.Duration(i) * 3 * time.Second)
		if i < 2 {
			f.loadAfter(time.Duration(i)*3*time.Second + settleTime) // it counts, with its errors
		}
		if diff := cmp.Diff(inForce, f.state); diff != "" {
			t.Fatalf("step %d takes objects away (-want +got):\n%s", i, diff)
		}
	}
}

// cutService is the first lines of a Service.
func cutService(text string, lines int) string {
	return strings.Join(strings.SplitAfter(text, "\n")[:lines], "")
}
