package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// TestExplainQueriesTheRunningProxyForKernelRejections: explain also works if the proxy does not respond.
func TestExplainQueriesTheRunningProxyForKernelRejections(t *testing.T) {
	folder := writeManifests(t, dualStackManifests)
	const rejections = `[{"kind":"Service","namespace":"shop","name":"web","code":"FailedToProgram","kernel":{"service":"shop/web",` +
		`"message":"too long","since":"2026-03-01T12:00:00Z","tries":2,"next":"2026-03-01T12:00:30Z","applied":true}}]`
	for name, test := range map[string]struct {
		node, answer string
		status       int
		refused      bool
	}{
		"this node's proxy":           {"node-a", rejections, http.StatusOK, true},
		"the proxy of another node":   {"node-b", rejections, http.StatusOK, false},
		"a kernel that accepts it":    {"node-a", `[]`, http.StatusOK, false},
		"another program":             {"node-a", "404 page not found", http.StatusNotFound, false},
		"a program with any response": {"node-a", "ok", http.StatusOK, false},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				if request.URL.Path == "/summary" {
					_, _ = fmt.Fprintf(w, `{"node":%q}`, test.node)
					return
				}
				if requests++; request.URL.RequestURI() != "/findings?code=FailedToProgram" {
					t.Errorf("request for %s", request.URL.RequestURI())
				}
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.answer))
			}))
			defer server.Close()
			address := strings.TrimPrefix(server.URL, "http://")
			for _, port := range explainPorts(t, "--manifests", folder, "--node", "node-a", "--metrics-bind-address", address) {
				want := (*explain.Rejection)(nil)
				if test.refused {
					since := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
					want = &explain.Rejection{
						Service: "shop/web", Message: "too long", Since: since, Tries: 2, Next: since.Add(30 * time.Second), HasApplied: true,
					}
				}
				if (port.Rejected == nil) != (want == nil) || want != nil && *port.Rejected != *want {
					t.Errorf("rejected: %+v, want %+v", port.Rejected, want)
				}
			}
			if requests != 1 {
				t.Errorf("%d requests, want 1", requests)
			}
		})
	}
}

// TestExplainQueriesTheRunningProxyForUnreachableNodes: observations of one node apply only to that node.
func TestExplainQueriesTheRunningProxyForUnreachableNodes(t *testing.T) {
	folder := writeManifests(t, strings.ReplaceAll(dualStackManifests, "nodeName: node-a", "nodeName: node-z"))
	const summary = `{"node":%q,"reachability":{"avoided":%t,"withBaseline":1,"unreachable":[{"node":%q,"since":"2026-03-01T12:00:00Z"}]}}`
	for name, test := range map[string]struct {
		page     string
		reported string
		decides  bool
	}{
		"they are demoted":            {fmt.Sprintf(summary, "node-a", true, "node-z"), "its endpoints are tried last", true},
		"they are only observed":      {fmt.Sprintf(summary, "node-a", false, "node-z"), "this is only reported", false},
		"another node's proxy":        {fmt.Sprintf(summary, "node-b", true, "node-z"), "", false},
		"a proxy that probes no node": {`{"node":"node-a","reachability":null}`, "", false},
		"another program":             {"ok", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				if request.URL.Path == "/summary" {
					_, _ = w.Write([]byte(test.page))
				}
			}))
			defer server.Close()
			got := proxyCommand(t, "explain", "--manifests", folder, "--node", "node-a", "--metrics-bind-address",
				strings.TrimPrefix(server.URL, "http://"))
			if isReported := strings.Contains(got.stderr, "has not replied to node-a since 2026-03-01 12:00:00 UTC: "+
				test.reported); isReported != (test.reported != "") {
				t.Errorf("stderr: %s", got.stderr)
			}
			decides := strings.Contains(got.stdout, "[NodeUnreachable]") || strings.Contains(got.stdout, "[OnlyUnreachable]")
			if decides != test.decides {
				t.Errorf("the unreachable node affects the decision: %v, want %v:\n%s", decides, test.decides, got.stdout)
			}
			why := proxyCommand(t, "explain", "--manifests", folder, "--node", "node-a", "--metrics-bind-address",
				strings.TrimPrefix(server.URL, "http://"), "shop/web", "--why", "node-z")
			if isAffected := strings.Contains(why.stdout, "[OnlyUnreachable]"); isAffected != test.decides {
				t.Errorf("the unreachable node affects --why: %v, want %v:\n%s%s", isAffected, test.decides, why.stdout, why.stderr)
			}
		})
	}
}
