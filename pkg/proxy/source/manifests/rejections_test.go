package manifests

import (
	"fmt"
	"testing"
)

// A start from the applied versions must decide like the running proxy, regardless of the problems in the folder:
// 'proxy status' depends on this.
func TestStartFromRejectionsMatchesTheRunningProxy(t *testing.T) {
	service := func(port int) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n"+
			"spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{port: %d}]}\n---\n", port)
	}
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
	for title, write := range map[string]func(*testFolder){
		"nothing":                     func(*testFolder) {},
		"an object is rejected":       func(f *testFolder) { f.write("b.yaml", service(70000)+node) },
		"a file cannot be read":       func(f *testFolder) { f.write("b.yaml", "a: [\n") },
		"a part of it cannot be read": func(f *testFolder) { f.write("b.yaml", service(80)+"a: [\n") },
		"it moves, and is rejected":   func(f *testFolder) { f.write("c.yaml", service(0)); f.write("b.yaml", node) },
		"it is duplicated":            func(f *testFolder) { f.write("a.yaml", service(81)) },
		"it never was valid":          func(f *testFolder) { f.write("c.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: N}\n") },
		"a duplicate comes and goes":  func(f *testFolder) { f.write("a.yaml", service(70000)); f.remove("a.yaml") },
	} {
		running := newTestFolder(t)
		running.write("b.yaml", service(80)+node)
		running.load()
		write(running)
		running.load()
		starting := &testFolder{t: t, dir: running.dir, folder: Folder{LastKnownGood: running.folder.Rejections()}, state: map[string]string{}}
		starting.load()
		if fmt.Sprint(running.state) != fmt.Sprint(starting.state) || len(running.state) != 2 {
			t.Errorf("%s: active are %v, and %v after a start", title, running.state, starting.state)
		}
		if rejections := len(running.folder.Rejections()); rejections == 0 != (len(running.problems) == 0) {
			t.Errorf("%s: %d rejections, problems %v", title, rejections, running.problems)
		}
	}
}
