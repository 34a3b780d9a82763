package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status/clusterstatus"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/hostile"
)

// startAPIServer is an API server with Nodes, each of which runs a proxy. livez serves the pods' responses through its
// proxy subresource.
func startAPIServer(t *testing.T, nodes []string, livez http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	list := func(kind, items string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"v1","kind":%q,"metadata":{},"items":[%s]}`, kind, items)
		}
	}
	var nodeItems, podItems []string
	for i, node := range nodes {
		name, err := json.Marshal(node)
		mustSucceed(t, err)
		nodeItems = append(nodeItems, fmt.Sprintf(`{"metadata":{"name":%s}}`, name))
		podItems = append(podItems, fmt.Sprintf(`{"metadata":{"name":"proxy-%d"},"spec":{"nodeName":%s}}`, i, name))
	}
	// The proxy does not run on Windows, so it is not missing there.
	nodeItems = append(nodeItems, `{"metadata":{"name":"windows","labels":{"kubernetes.io/os":"windows"}}}`)
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/nodes", list("NodeList", strings.Join(nodeItems, ",")))
	mux.HandleFunc("/api/v1/namespaces/kube-system/pods", list("PodList", strings.Join(podItems, ",")))
	mux.HandleFunc("/api/v1/namespaces/kube-system/pods/{pod}/proxy/livez", livez)
	return kubeconfigFor(t, mux)
}

// kubeconfigFor serves a cluster, and returns a kubeconfig for it.
func kubeconfigFor(t *testing.T, cluster http.Handler) string {
	t.Helper()
	server := httptest.NewServer(cluster)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	mustSucceed(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: here,
clusters: [{name: a, cluster: {server: %q}}], users: [{name: me, user: {token: secret}}],
contexts: [{name: here, context: {cluster: a, user: me}}]}`, server.URL), 0o600))
	return file
}

// livezPage is the response of a proxy.
const livezPage = `{"healthy":false,"status":{"IPv4":{"lastUpdated":"2026-03-01T12:00:00Z","healthy":true}},
"pendingSince":"2026-03-01T12:00:00Z","lastError":"netlink","refusedTotal":3,
"interruptions":[{"resource":"services","since":"2026-03-01T12:00:00Z","reason":"connection refused"}]}`

// TestNoEscapeSequenceOfAPodsResponseReachesTheTerminal covers a page, an error, and other responses.
func TestNoEscapeSequenceOfAPodsResponseReachesTheTerminal(t *testing.T) {
	status, response, printed := http.StatusOK, "", 0
	kubeconfig := startAPIServer(t, []string{"node-a", "node-b" + hostile.Text}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, response)
	})
	check := func(what string, text []byte) {
		response = string(text)
		for _, output := range []string{"text", "json", "yaml"} {
			got := expectEscaped(t, what, "status", "--all-nodes", "--kubeconfig", kubeconfig, "-o", output)
			if got.status != 1 {
				t.Errorf("%s: status %d, %s", what, got.status, got.stdout)
			}
			printed += strings.Count(got.stdout, hostile.Line) - strings.Count(hostile.Text, hostile.Line) // except for the Node's name
		}
	}
	for _, status = range []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusForbidden} {
		mustSucceed(t, hostile.EachName([]byte(livezPage), check))
		mustSucceed(t, hostile.EachName([]byte(strings.Replace(livezPage, `"netlink"`, `""`, 1)), check))
		mustSucceed(t, hostile.EachName([]byte(`{"kind":"Status","apiVersion":"v1","message":"no such pod","reason":"NotFound"}`), check))
		check("no JSON", []byte(hostile.Text+"\x9b"))
	}
	if printed < 50 { // otherwise the injected texts would not be in the output
		t.Errorf("only %d of the injected texts are printed", printed)
	}
}

// TestStatusOfAllNodesFailsWithInvalidObjects: no response shows whether earlier versions of them are active.
func TestStatusOfAllNodesFailsWithInvalidObjects(t *testing.T) {
	const healthyPage = `{"healthy":true,"status":{"IPv4":{}},"refusedTotal":%d}`
	responses := map[string]string{"proxy-0:10256": fmt.Sprintf(healthyPage, 0)}
	kubeconfig := startAPIServer(t, splitArgs("node-a node-b"), func(w http.ResponseWriter, request *http.Request) {
		fmt.Fprint(w, responses[request.PathValue("pod")])
	})
	for _, test := range []struct {
		answer string
		status int
	}{{fmt.Sprintf(healthyPage, 0), 0}, {fmt.Sprintf(healthyPage, 1), 2}, {`{"healthy":false,"status":{"IPv4":{}},"refusedTotal":1}`, 1}} {
		responses["proxy-1:10256"] = test.answer
		for _, output := range []string{"text", "json"} {
			if got := proxyCommand(t, "status", "--all-nodes", "--kubeconfig", kubeconfig, "-o", output); got.status != test.status {
				t.Errorf("%s: %+v, want status %d", test.answer, got, test.status)
			}
		}
	}
}

// TestAPodsResponseIsBounded covers size, time and redirects: any program may respond instead of the proxy.
func TestAPodsResponseIsBounded(t *testing.T) {
	var redirected atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Add(1) }))
	defer other.Close()
	writeEndlessly := func(w http.ResponseWriter, beginning, part string, pause time.Duration) {
		_, err := fmt.Fprint(w, beginning)
		for ; err == nil; _, err = fmt.Fprint(w, part) {
			_ = http.NewResponseController(w).Flush()
			time.Sleep(pause)
		}
	}
	pods := splitArgs("error many redirected slow text")
	megabyte := strings.Repeat("x", 1<<20)
	kubeconfig := startAPIServer(t, pods, func(w http.ResponseWriter, request *http.Request) {
		var pod int
		_, err := fmt.Sscanf(request.PathValue("pod"), "proxy-%d:10256", &pod)
		mustSucceed(t, err)
		switch pods[pod] {
		case "error":
			w.WriteHeader(http.StatusInternalServerError)
			writeEndlessly(w, "", megabyte, 0)
		case "many":
			fmt.Fprintf(w, `{"status":{},"interruptions":[%s{}]}`, strings.Repeat("{},", 10_000))
		case "redirected":
			http.Redirect(w, request, other.URL, http.StatusFound)
		case "slow":
			writeEndlessly(w, `{"lastError":"`, "x", 10*time.Millisecond)
		case "text":
			writeEndlessly(w, `{"lastError":"`, megabyte, 0)
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := proxyCommand(t, "status", "--all-nodes", "--kubeconfig", kubeconfig, "-o", "json")
	runtime.ReadMemStats(&after)
	var nodes []clusterstatus.Node
	if err := json.Unmarshal([]byte(got.stdout), &nodes); err != nil || len(nodes) != 5 || got.status != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	const tooLarge = "request failed: larger than the limit of 65536 bytes"
	for i, want := range []string{tooLarge, "", "request failed: 302 Found", "context deadline exceeded", tooLarge} {
		if nodes[i].InSync || !strings.Contains(nodes[i].Problem, want) {
			t.Errorf("%s: %q, want %q", nodes[i].Node, nodes[i].Problem, want)
		}
	}
	if many := len(nodes[1].Interruptions); many > 20 {
		t.Errorf("%d interruptions are kept", many)
	}
	if redirected.Load() > 0 {
		t.Error("a pod redirected the request to another server")
	}
	// The servers are in this process, too, and their allocations are included.
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
		t.Errorf("%d MiB were allocated", allocated>>20)
	}
}

// TestNoEscapeSequenceOfAnAPIServerReachesTheTerminal covers errors of lists, warnings, and a server that is not an API
// server.
func TestNoEscapeSequenceOfAnAPIServerReachesTheTerminal(t *testing.T) {
	status, response := http.StatusForbidden, ""
	kubeconfig := kubeconfigFor(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", "299 - \""+hostile.Line+"\u009b\u202e\"")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, response)
	}))
	check := func(what string, text []byte) {
		response = string(text)
		for _, command := range []string{
			"forecast", "explain --node node-a", "explain --all-nodes", "explain --node node-a shop/web --why node-b", "render --node node-a",
			"status --all-nodes",
		} {
			if got := expectEscaped(t, what, append(splitArgs(command), "--kubeconfig", kubeconfig)...); got.status == 0 {
				t.Errorf("%s: %s: %+v", what, command, got)
			}
		}
	}
	for _, status = range []int{http.StatusForbidden, http.StatusInternalServerError, http.StatusOK} {
		mustSucceed(t, hostile.EachName([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden",
"details":{"name":"n","kind":"nodes","causes":[{"reason":"r","message":"m","field":"f"}]}}`), check))
		check("no JSON", []byte(hostile.Text+"\x9b"))
	}
}

// TestNoEscapeSequenceOfTheLocalProxyReachesTheTerminal covers 'explain', which requests the kernel rejections of the
// local proxy. Another program may listen on the proxy's port.
func TestNoEscapeSequenceOfTheLocalProxyReachesTheTerminal(t *testing.T) {
	response, printed := "", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/summary" {
			fmt.Fprint(w, `{"node":"node-a"}`)
			return
		}
		fmt.Fprint(w, response)
	}))
	defer server.Close()
	mustSucceed(t, hostile.EachName([]byte(`[{"kind":"Service","namespace":"shop","name":"web","kernel":{"service":"shop/web",
"message":"too long","since":"2026-03-01T12:00:00Z","tries":2,
"next":"2026-03-01T12:00:30Z","applied":true}}]`), func(what string, text []byte) {
		response = string(text)
		got := expectEscaped(t, what, "explain", "--manifests", stateFolder, "--node", "node-a", "shop/web",
			"--metrics-bind-address", strings.TrimPrefix(server.URL, "http://"))
		if strings.Contains(got.stdout, hostile.Line) {
			printed++
		}
	}))
	if printed == 0 {
		t.Error("no text from the proxy's response is printed")
	}
}
