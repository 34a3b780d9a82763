package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

const (
	stateFolder = "testdata/state"
	// rejectionWarning is the beginning of every command's warning about testdata/state/refused.yaml.
	rejectionWarning = "warning: refused.yaml: Service shop/refused: spec.ports[0].port: "
)

func TestExplainShowsWhatEachNodeDoes(t *testing.T) {
	tests := map[string]struct {
		args []string
		want map[string]string // the outcome by node
	}{
		"the node with the endpoint":     {splitArgs("--node node-a"), map[string]string{"node-a": "balance"}},
		"the node in another zone":       {splitArgs("--node node-b"), map[string]string{"node-b": "refuse"}},
		"a node's name in upper case":    {splitArgs("--node NODE-A"), map[string]string{"node-a": "balance"}},
		"all nodes":                      {splitArgs("--all-nodes"), map[string]string{"node-a": "balance", "node-b": "refuse"}},
		"one Service":                    {splitArgs("--node node-a shop/web"), map[string]string{"node-a": "balance"}},
		"one port, by its number":        {splitArgs("--node node-a shop/web:80"), map[string]string{"node-a": "balance"}},
		"one port on all nodes, by name": {splitArgs("--all-nodes shop/web:http"), map[string]string{"node-a": "balance", "node-b": "refuse"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := proxyCommand(t, append(splitArgs("explain -o json --manifests "+stateFolder), test.args...)...)
			var ports []explain.PortReport
			if err := json.Unmarshal([]byte(got.stdout), &ports); err != nil {
				t.Fatalf("exit status %d, %v in %q; stderr:\n%s", got.status, err, got.stdout, got.stderr)
			}
			outcomes := map[string]string{}
			for _, port := range ports {
				outcomes[port.Node] = port.Outcome
			}
			if diff := cmp.Diff(test.want, outcomes); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

// heapWriter is a writer that samples how much of the heap is in use.
type heapWriter struct{ written, writes, max int }

func (w *heapWriter) Write(page []byte) (int, error) {
	if w.writes%20 == 0 {
		w.max = max(w.max, heap())
	}
	w.written, w.writes = w.written+len(page), w.writes+1
	return len(page), nil
}

// heap returns the bytes in use.
func heap() int {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return int(memory.HeapAlloc)
}

// TestExplainKeepsNoNodeInMemory: the output of all nodes may not fit into memory, so each node is written before the
// next one is decided. Each has a different number of endpoints, so that no two decisions are equal.
func TestExplainKeepsNoNodeInMemory(t *testing.T) {
	const nodes = 40
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop, " +
		"annotations: {vicinity.dev/topology-keys: kubernetes.io/hostname}}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}\n" +
		"- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1, namespace: shop, labels: " +
		"{kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 80}], endpoints: [")
	for i := range nodes {
		for e := range i + 1 {
			fmt.Fprintf(&text, "{addresses: [10.244.%d.%d], nodeName: node-%d}, ", i, e, i)
		}
	}
	text.WriteString("]}\n")
	for i := range nodes {
		fmt.Fprintf(&text, "- {apiVersion: v1, kind: Node, metadata: {name: node-%d, labels: {kubernetes.io/hostname: node-%d}}}\n", i, i)
	}
	folder := writeManifests(t, text.String())
	for _, format := range []string{"text", "json"} {
		var stdout heapWriter
		before := heap()
		args := splitArgs("explain --all-nodes --all -o " + format + " --manifests " + folder)
		if status := cli.Run(t.Context(), newRoot(), args, strings.NewReader(""), &stdout, &strings.Builder{}); status != 0 {
			t.Fatalf("exit status %d", status)
		}
		if grown := stdout.max - before; stdout.writes < nodes || grown > stdout.written/4 {
			t.Errorf("%s: %d writes; the heap grew by %d bytes, for %d bytes of output",
				format, stdout.writes, grown, stdout.written)
		}
	}
}

func TestExplainReportsUnknownNames(t *testing.T) {
	tests := map[string]struct {
		args   string
		stderr string // the last line
	}{
		"a mistyped Service": {"--node node-a shop/wbe", "proxy: service shop/wbe not found in testdata/state; did you mean shop/web?"},
		"an unknown port":    {"--node node-a shop/web:https", "proxy: service shop/web has no port https; it has http 80/TCP"},
		"a Service without a similar name": {
			"--all-nodes kube-system/metrics", "proxy: service kube-system/metrics not found in testdata/state",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := proxyCommand(t, splitArgs("explain --manifests "+stateFolder+" "+test.args)...)
			lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
			got.stderr = lines[len(lines)-1]
			if want := (outcome{1, "", test.stderr}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestARejectedObjectIsAWarningAndAnExitStatus: the status is 0 if only another Service is requested. Standard output
// has the other objects.
func TestARejectedObjectIsAWarningAndAnExitStatus(t *testing.T) {
	for command, status := range map[string]int{
		"explain": 2, "render": 2, "explain shop/web": 0, "explain --all-nodes": 2,
	} {
		t.Run(command, func(t *testing.T) {
			args := splitArgs(command + " --manifests " + stateFolder)
			if !strings.Contains(command, "--all-nodes") {
				args = append(args, "--node", "node-a")
			}
			got := proxyCommand(t, args...)
			if got.status != status {
				t.Errorf("exit status %d, want %d", got.status, status)
			}
			if !strings.HasPrefix(got.stderr, rejectionWarning) || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("stderr is not one line that begins with %q:\n%s", rejectionWarning, got.stderr)
			}
			if strings.Contains(got.stdout, "warning") || !strings.Contains(got.stdout, "10.96.0.10") {
				t.Errorf("stdout has a warning, or lacks the output:\n%s", got.stdout)
			}
		})
	}
}

// TestUnknownNodeIsAnError: it is only a warning if the manifests have no Nodes.
func TestUnknownNodeIsAnError(t *testing.T) {
	folder := writeManifests(t, nodePortManifests)
	withoutNodes := writeManifests(t, nodePortManifests[:strings.Index(nodePortManifests, "- apiVersion: v1\n  kind: Node")])
	for _, command := range []string{"explain", "render", "explain shop/web --why 10.9.9.9"} {
		for _, test := range []struct {
			node, folder, want string
			status             int
		}{
			{"nobody", folder, `proxy: there is no Node "nobody" in ` + folder + "; --node chooses one of node-a, node-b\n", 1},
			{"node-aa", folder, `proxy: there is no Node "node-aa" in ` + folder + "; did you mean node-a?\n", 1},
			{"nobody", withoutNodes, "warning: there is no Node in " + withoutNodes +
				`, so the labels of "nobody" are unknown, and no endpoint is near it; ` +
				"'kubectl get nodes -o yaml' prints Nodes; found: EndpointSlice (1), Service (1)\n", 0},
		} {
			got := proxyCommand(t, append(splitArgs(command), "--node", test.node, "--manifests", test.folder)...)
			isExplained := got.status == 0 || strings.Contains(got.stderr, "10.9.9.9 is not an endpoint of shop/web")
			if isExplained == (test.status != 0) || !strings.HasPrefix(got.stderr, test.want) {
				t.Errorf("%s on %s: exit status %d, stderr %q; want %d and %q", command, test.node, got.status, got.stderr, test.status, test.want)
			}
		}
	}
}

func TestRenderPrintsBothTablesOfTheNode(t *testing.T) {
	got := proxyCommand(t, splitArgs("render --node node-a --cluster-cidr 10.244.0.0/16 --manifests "+stateFolder)...)
	for _, part := range []string{
		"table ip vicinity {", "table ip6 vicinity {", "10.96.0.10 . tcp . 80 . fd00:0 : 10.244.1.5 . 8080", "!= 10.244.0.0/16 masquerade",
	} {
		if !strings.Contains(got.stdout, part) {
			t.Errorf("the ruleset lacks %q:\n%s", part, got.stdout)
		}
	}
	if other := proxyCommand(t, splitArgs("render --node node-b --manifests "+stateFolder)...); strings.Contains(other.stdout, "10.244.1.5") {
		t.Errorf("node-b uses an endpoint of another zone:\n%s", other.stdout)
	}
}

func TestUnreadableFolderIsNotAUsageError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, command := range []string{"explain", "render"} {
		got := proxyCommand(t, command, "--manifests", missing)
		if got.status != 1 || got.stdout != "" {
			t.Errorf("%s: exit status %d, stdout %q; want 1 and nothing", command, got.status, got.stdout)
		}
		if !strings.HasPrefix(got.stderr, "proxy: load manifests: ") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: stderr is not one line: %q", command, got.stderr)
		}
	}
}

func TestAnEmptyFolderIsExplainedAsNothing(t *testing.T) {
	empty := t.TempDir()
	got := proxyCommand(t, "explain", "--node", "node-a", "-o", "json", "--manifests", empty)
	want := outcome{2, "[]\n", "'kubectl get services -A -o yaml' prints Services; found: no objects\n"}
	if !strings.HasSuffix(got.stderr, want.stderr) ||
		got.status != want.status || got.stdout != want.stdout {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = proxyCommand(t, "explain", "--all-nodes", "--manifests", empty)
	if got.status != 1 || !strings.Contains(got.stderr, "there is no Node in") {
		t.Errorf("all nodes, without Nodes: exit status %d, stderr %q", got.status, got.stderr)
	}
}

// TestUnservedServiceIsExplained: the message has the reason, and what serves the Service instead.
func TestUnservedServiceIsExplained(t *testing.T) {
	folder := writeManifests(t, nodePortManifests+`- apiVersion: v1
  kind: Service
  metadata: {name: others, namespace: shop, labels: {service.kubernetes.io/service-proxy-name: cilium}}
  spec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: db, namespace: shop}
  spec: {clusterIP: None, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: keys, namespace: shop, annotations: {vicinity.dev/topology-keys: no good}}
  spec: {clusterIP: None, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: away, namespace: shop}
  spec: {type: ExternalName, externalName: billing.example.com}
- apiVersion: v1
  kind: Service
  metadata: {name: new, namespace: shop}
  spec: {ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: bad, namespace: shop}
  spec: {clusterIP: nonsense, ports: [{port: 80}]}
`)
	for args, test := range map[string]struct {
		status int
		want   string
	}{
		"shop/others": {1, `service shop/others: it belongs to another proxy: its label service.kubernetes.io/service-proxy-name is "cilium", ` +
			"and how that proxy serves it is unknown here"},
		"shop/web --service-proxy-name cilium": {1, "service shop/web: it belongs to another proxy: it lacks the label " +
			"service.kubernetes.io/service-proxy-name: cilium, and Services without it are served by kube-proxy or its replacement"},
		"shop/db": {1, "service shop/db: it is headless, without topology keys: DNS returns all ready endpoints, and clients " +
			"connect to them without a proxy"},
		"shop/keys": {1, "service shop/keys: it is headless, and its topology keys are ignored: DNS returns all ready " +
			"endpoints, and clients connect to them without a proxy"},
		"shop/away": {1, "service shop/away: it is of type ExternalName: DNS sends its clients to billing.example.com, without a proxy"},
		"shop/new":  {1, "service shop/new: it has no ClusterIP yet, so no client can connect to it"},
		"shop/bad":  {2, "proxy: service shop/bad is invalid: see the warning above"},
	} {
		for _, whyFlag := range []string{"", " --why node-a"} {
			got := proxyCommand(t, append(splitArgs("explain --node node-a "+args+whyFlag), "--manifests", folder)...)
			if whyFlag != "" && test.status == 1 {
				_, test.want, _ = strings.Cut(test.want, ": ")
			}
			isInvalidWithWhy := test.status == 2 && whyFlag != "" // the message gives the reason
			if got.status != test.status && !isInvalidWithWhy || !isInvalidWithWhy && !strings.HasSuffix(got.stderr, test.want+"\n") {
				t.Errorf("%s: %+v; want %d, %s", args+whyFlag, got, test.status, test.want)
			}
		}
	}
}

func TestTheNodeIsTheHostUnlessOneIsGiven(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host = strings.ToLower(host)
	folder := writeManifests(t, strings.ReplaceAll(nodePortManifests, "name: node-a", "name: "+host))
	got := proxyCommand(t, splitArgs("explain --manifests "+folder)...)
	if !strings.Contains(got.stdout, "on "+host+"\n") {
		t.Errorf("the output does not name the host %q:\n%s%s", host, got.stdout, got.stderr)
	}
}
