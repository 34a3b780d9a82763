//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/hostile"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestObjectTextsAreEscapedInTheLog also covers the output of `proxy status` for that daemon. There is one file for
// each text field of each object, with a hostile text in that field.
func TestObjectTextsAreEscapedInTheLog(t *testing.T) {
	text, err := os.ReadFile("testdata/objects.yaml")
	mustSucceed(t, err)
	objects, err := yaml.YAMLToJSON(text)
	mustSucceed(t, err)
	for _, format := range []string{"text", "json"} {
		namespace, folder := netns.New(t), manifestsCopy(t)
		d := startDaemon(t, namespace, "--manifests", folder, "--log-format", format, "--log-level", "debug")
		i := 0
		mustSucceed(t, hostile.EachName(objects, func(_ string, text []byte) {
			mustSucceed(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d%s.json", i, hostile.Line)), text, 0o600))
			i++
		}))
		// Some files, such as a List of another kind, have no findings. Duplicate objects have.
		mustSucceed(t, os.WriteFile(filepath.Join(folder, "last\x1b\n"+hostile.Line+".json"), objects, 0o600))
		wait.Until(t, "the last file is reported", func() bool {
			_, body := d.get(t, "127.0.0.1:10249", "/findings?code=Invalid")
			return strings.Contains(body, `last\x1b`) || strings.Contains(body, `last\\x1b`)
		})
		got := statusIn(t, namespace)
		if found := hostile.Found(got.stdout + got.stderr); found != "" {
			t.Errorf("the output of status: %s", found)
		}
		result := d.stop(t)
		if found := hostile.Found(result.stderr); found != "" || !strings.Contains(result.stderr, hostile.Line) {
			t.Errorf("the log in the format %s has control characters, or no hostile text: %s", format, found)
		}
	}
}

// TestNoEscapeSequenceOfTheProxysPagesReachesTheTerminal covers 'status': another program may listen on the proxy's
// port.
func TestNoEscapeSequenceOfTheProxysPagesReachesTheTerminal(t *testing.T) {
	namespace, folder := netns.New(t), manifestsCopy(t)
	summary, err := json.Marshal(status.Summary{
		Node: hostile.Text, Version: hostile.Text, NodeTopology: hostile.Text, LastError: hostile.Text, IneligibleReason: hostile.Text,
		Interruptions: []status.Interruption{{Resource: hostile.Text, Reason: hostile.Text}},
	})
	mustSucceed(t, err)
	var pages sync.Map
	pages.Store("/summary", string(summary))
	flags, err := parseRunFlags(t, "--node node-a --manifests "+folder)
	mustSucceed(t, err)
	configz, err := json.Marshal(flags.options().ConfigzData)
	mustSucceed(t, err)
	pages.Store("/configz", string(configz))
	rejections, err := json.Marshal([]map[string]string{{"kind": hostile.Text, "file": hostile.Text, "name": hostile.Text}})
	mustSucceed(t, err)
	pages.Store("/findings", string(rejections))
	var listener net.Listener
	namespace.Do(func() { listener, err = net.Listen("tcp", "127.0.0.1:10249") })
	mustSucceed(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		page, _ := pages.Load(request.URL.Path)
		fmt.Fprint(w, page)
	}))
	server.Listener = listener
	server.Start()
	defer server.Close()
	for _, output := range []string{"text", "json"} {
		got := statusIn(t, namespace, "-o", output)
		if found := hostile.Found(got.stdout + got.stderr); found != "" || got.status != 1 || !strings.Contains(got.stdout, `\nforged`) {
			t.Errorf("%s: %s in %+v", output, found, got)
		}
	}
	absent, err := json.Marshal(folder + "/absent" + hostile.Text)
	mustSucceed(t, err)
	quotedFolder, err := json.Marshal(folder)
	mustSucceed(t, err)
	for _, page := range []string{strings.ReplaceAll(string(configz), string(quotedFolder), string(absent)), hostile.Text} {
		pages.Store("/configz", page)
		if got := statusIn(t, namespace); hostile.Found(got.stdout+got.stderr) != "" || got.status != 1 {
			t.Errorf("settings: %+v", got)
		}
	}
}
