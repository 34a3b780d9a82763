package manifests_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// realCluster is a lab, and a user who follows the README.
type realCluster struct {
	// dir is where the user has a copy of the manifests.
	dir string
	lab string
	env []string
}

// realNodes are the nodes of the lab.
var realNodes = []string{"node-1", "node-2"}

// startCluster starts a lab with kube-proxy on all nodes. Vicinity's image is there, and no pod uses it yet.
func startCluster(t *testing.T) *realCluster {
	t.Helper()
	dir := t.TempDir()
	c := &realCluster{dir: dir, lab: site.Program(t, "lab")}
	lab := filepath.Join(dir, "lab")
	programs := programs(t).Folder(binaries.Kubernetes)
	c.env = append(os.Environ(), "KUBECONFIG="+filepath.Join(lab, "kubeconfig"), "PATH="+programs+":"+os.Getenv("PATH"))
	c.run(t, root, "cp", "-a", "manifests", dir)
	t.Cleanup(func() {
		// t.Context is over by now.
		if output, err := exec.CommandContext(context.WithoutCancel(t.Context()), c.lab, "down", "--dir", lab).CombinedOutput(); err != nil {
			t.Errorf("lab down: %v\n%s", err, output)
		}
	})
	c.run(t, root, c.lab, "up", "--dir", lab, "--nodes", strconv.Itoa(len(realNodes)), "--install", "none", "--kube-proxy",
		"--proxy-binary", site.Program(t, "proxy"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the proxies said:\n%s", c.logs(t))
		}
	})
	return c
}

// run returns what a command prints.
func (c *realCluster) run(t *testing.T, dir, name string, arguments ...string) string {
	t.Helper()
	command := exec.Command(name, arguments...) // also when the test has ended
	command.Dir, command.Env = dir, c.env
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	return string(output)
}

// follow types in what the README says, and stops at the first command that fails.
func (c *realCluster) follow(t *testing.T, chapter string) {
	t.Helper()
	c.run(t, c.dir, "sh", "-euxc", script(t, manifestsReadme, chapter))
}

// prepare makes my-cluster, with the values that are this cluster's.
func (c *realCluster) prepare(t *testing.T) {
	t.Helper()
	c.follow(t, "Before you install")
	config := c.run(t, c.dir, "kubectl", "-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "yaml")
	for file, edits := range map[string][][2]string{
		"kustomization.yaml": {{"newName: images.example/vicinity-proxy", "newName: vicinity-proxy"}, {"newTag: v1.0.0", "newTag: lab"}},
		"configmap.yaml": {
			{"server: https://control-plane.example:6443", line(t, config, "server: ")},
			{`clusterCIDR: ""`, line(t, config, "clusterCIDR: ")},
		},
	} {
		path := filepath.Join(c.dir, "my-cluster", file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, edit := range edits {
			if !strings.Contains(string(text), edit[0]) {
				t.Fatalf("%s lacks %q:\n%s", path, edit[0], text)
			}
			text = []byte(strings.Replace(string(text), edit[0], edit[1], 1))
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// line returns the first line that begins with a word, without what indents it.
func line(t *testing.T, text, word string) string {
	t.Helper()
	for candidate := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(candidate); strings.HasPrefix(trimmed, word) {
			return trimmed
		}
	}
	t.Fatalf("no line begins with %q in\n%s", word, text)
	return ""
}

// expectServedBy looks at the tables of every node, and dials a Service from there.
func (c *realCluster) expectServedBy(t *testing.T, ours, others string) {
	t.Helper()
	for _, node := range realNodes {
		tables := strings.Fields(c.exec(t, node, "nft", "list", "tables"))
		if !slices.Contains(tables, ours) || slices.Contains(tables, others) {
			t.Errorf("%s has the tables %q; want those of %s, and none of %s", node, tables, ours, others)
		}
		address := strings.ReplaceAll(net.JoinHostPort(controlplane.DNS.String(), "53"), ":", "/")
		c.exec(t, node, "timeout", "10", "bash", "-c", "exec 3<>/dev/tcp/"+address)
	}
}

// exec runs a program of this machine in the network of a node.
func (c *realCluster) exec(t *testing.T, node string, program ...string) string {
	t.Helper()
	return c.run(t, c.dir, c.lab, append([]string{"exec", "--dir", filepath.Join(c.dir, "lab"), node}, program...)...)
}

// TestTheReadmeReplacesKubeProxy goes by the README on real nodes, to Vicinity and back, with kube-proxy as kubeadm
// deploys it and the Jobs as they are. (Its name is short, because sockets of the lab are in a folder of this name.)
func TestTheReadmeReplacesKubeProxy(t *testing.T) {
	c := startCluster(t)
	c.expectServedBy(t, "kube-proxy", "vicinity")
	c.prepare(t)

	c.follow(t, "Replace kube-proxy")
	c.expectServedBy(t, "vicinity", "kube-proxy")

	c.changeKubeconfig(t)
	c.expectServedBy(t, "vicinity", "kube-proxy")

	c.follow(t, "Go back to kube-proxy")
	c.expectServedBy(t, "kube-proxy", "vicinity")
	if left := c.run(t, c.dir, "kubectl", "-n", "kube-system", "get", "jobs,pods", "-o", "name"); strings.Contains(left, "cleanup") ||
		strings.Contains(left, "vicinity") {
		t.Errorf("there are still\n%s", left)
	}
}

// kubeletPatience is for a kubelet that brings new texts every minute or two.
const kubeletPatience = 3 * time.Minute

// changeKubeconfig gives the proxies a kubeconfig that is wrong, which they must not mind, and then one that is right
// and new.
func (c *realCluster) changeKubeconfig(t *testing.T) {
	t.Helper()
	path := filepath.Join(c.dir, "my-cluster", "configmap.yaml")
	right, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change := func(old, new string) {
		t.Helper()
		if !strings.Contains(string(right), old) {
			t.Fatalf("%s lacks %q:\n%s", path, old, right)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(right), old, new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		c.run(t, c.dir, "kubectl", "apply", "-k", "my-cluster")
		// kubelet brings a new text when it next looks after the pod, within a minute or two. A pod that changes makes it
		// look now.
		c.run(t, c.dir, "kubectl", "-n", "kube-system", "annotate", "pod", "-l", "app.kubernetes.io/name=vicinity-proxy", "--overwrite",
			"looked-at="+time.Now().Format(time.RFC3339Nano))
	}
	change("current-context: default", "current-context: missing")
	wait.Within(t, kubeletPatience, "all proxies say that the kubeconfig is wrong", func() bool {
		const refused = "an updated configuration file cannot be used; keeping the last good one"
		return strings.Count(c.logs(t), refused) == len(realNodes)
	})
	if restarts := c.restarts(t); restarts != "0 0" {
		t.Errorf("the proxies were started %s times anew because of a kubeconfig that is wrong", restarts)
	}
	change("    current-context: default", "    # It is new.\n    current-context: default")
	wait.Within(t, kubeletPatience, "all proxies were started anew", func() bool { return c.restarts(t) == "1 1" })
	c.run(t, c.dir, "kubectl", "-n", "kube-system", "rollout", "status", "daemonset", "vicinity-proxy", "--timeout=2m")
}

// restarts returns a number for each proxy, such as "0 0": how often its container was started anew.
func (c *realCluster) restarts(t *testing.T) string {
	t.Helper()
	return c.run(t, c.dir, "kubectl", "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=vicinity-proxy",
		"-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}")
}

// logs are what all proxies said.
func (c *realCluster) logs(t *testing.T) string {
	t.Helper()
	return c.run(t, c.dir, "kubectl", "-n", "kube-system", "logs", "daemonset/vicinity-proxy", "--all-pods", "--prefix")
}
