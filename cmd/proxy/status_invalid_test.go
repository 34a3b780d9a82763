//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestStatusShowsTheLastKnownGoodVersion: for each kind of invalid object, 'status' lists the object and reports that
// the kernel is in sync with its last known good version.
func TestStatusShowsTheLastKnownGoodVersion(t *testing.T) {
	namespace, folder := netns.New(t), goodManifests(t)
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(file string) {
		if err := os.Remove(filepath.Join(folder, file)); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(filepath.Join(folder, "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	alwaysInvalid, err := os.ReadFile(filepath.Join(stateFolder, "refused.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--manifests", folder, "--own-tables", "never", "--metrics-bind-address", "127.0.0.1:10549"}
	const at = "--metrics-bind-address=127.0.0.1:10549"
	daemon := startDaemon(t, namespace, args...)
	// refuses waits until the proxy reports exactly the given invalid objects.
	waitForInvalid := func(subjects ...string) {
		t.Helper()
		wait.Equal(t, "the proxy's invalid objects", fmt.Sprint(subjects), func() string {
			_, body := daemon.get(t, "127.0.0.1:10549", "/findings?last-known-good")
			var rejections []convert.Rejection
			if err := json.Unmarshal([]byte(body), &rejections); err != nil {
				return body
			}
			var names []string
			for _, rejection := range rejections {
				names = append(names, strings.TrimSpace(rejection.Kind+" "+rejection.Name.Name))
			}
			return fmt.Sprint(names)
		})
	}
	changeService := func(old, text string) func() {
		return func() { write("shop.yaml", strings.Replace(string(good), old, text, 1)) }
	}
	nothing := func() {}
	for _, step := range []struct {
		title   string
		do      func()
		refuses []string // by the proxy
		lists   []string // by 'status', in Kind name
		undo    func()
	}{
		{"nothing is invalid", nothing, nil, nil, nothing},
		{"a Service", changeService("port: 80,", "port: 70000,"), []string{"Service web"}, []string{"Service shop/web"}, nothing},
		{
			"a slice", changeService("addressType: IPv4", "addressType: ipv4"), []string{"EndpointSlice web-1"},
			[]string{"EndpointSlice shop/web-1"}, nothing,
		},
		{
			"this Node", changeService("name: node-a, labels", "name: node-a, namespace: x, labels"), []string{"Node node-a"},
			[]string{"Node node-a"}, nothing,
		},
		{
			"a file that cannot be read", func() { write("shop.yaml", "a: [\n") },
			[]string{"", "EndpointSlice web-1", "Node node-a", "Node node-b", "Service web"}, []string{"shop.yaml"}, nothing,
		},
		{
			"a Service in two files, of which a restarted proxy would use the other one",
			func() {
				write("a.yaml", strings.Replace(strings.Replace(string(alwaysInvalid), "refused", "web", 1), "70000", "81", 1))
			},
			[]string{"Service web"}, []string{"Service shop/web"}, func() { remove("a.yaml") },
		},
		{
			"an invalid label, which does not make the object invalid", changeService("zone-b}", "zone-b, vicinity.dev/evacuate: soon}"), nil,
			nil, nothing,
		},
	} {
		step.do()
		waitForInvalid(step.refuses...)
		node, exit := nodeStatusIn(t, namespace, at)
		var listed []string
		for _, invalid := range node.Invalid {
			if listed = append(listed, invalid.Object); !invalid.ReportedByProxy || !invalid.HasLastKnownGood {
				t.Errorf("%s: %+v; want one that the proxy reports, too, with a last known good version", step.title, invalid)
			}
		}
		if exit != 0 || !node.InSync || len(node.Kernel.Differences) > 0 || !slices.Equal(listed, step.lists) {
			t.Errorf("%s: exit status %d, %+v; want 0 and %v", step.title, exit, node, step.lists)
		}
		text := statusIn(t, namespace, at).stdout
		if hasLine := strings.Contains(text, "; its last known good version is active, as expected\n"); hasLine != (len(listed) > 0) {
			t.Errorf("%s: the text wrongly has or lacks the line about the last known good version:\n%s", step.title, text)
		}
		step.undo()
		write("shop.yaml", string(good))
		waitForInvalid()
	}

	write("refused.yaml", string(alwaysInvalid))
	waitForInvalid("Service refused")
	node, exit := nodeStatusIn(t, namespace, at)
	if exit != exitIncomplete || !node.InSync || len(node.Invalid) != 1 || !node.Invalid[0].ReportedByProxy ||
		node.Invalid[0].HasLastKnownGood {
		t.Errorf("an object without a known good version: exit status %d, %+v; want %d", exit, node, exitIncomplete)
	}
	remove("refused.yaml")
	changeService("port: 80,", "port: 70000,")()
	waitForInvalid("Service web")
	daemon.stop(t)
	alone := append([]string{"--node", "node-a"}, args...)
	if node, exit := nodeStatusIn(t, namespace, alone...); exit != 1 || len(node.Kernel.Differences) == 0 || node.Invalid[0].ReportedByProxy {
		t.Errorf("without a proxy: exit status %d, %+v; want 1 and differences, because the last known good version is unknown", exit, node)
	}
}
