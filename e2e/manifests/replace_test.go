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

	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// realCluster is a lab with a user who follows the documents.
type realCluster struct {
	*docShell
	lab    string // the program's path
	labDir string
}

// realNodes are the nodes of the lab.
var realNodes = []string{"node-1", "node-2"}

// startCluster starts a lab with kube-proxy on all nodes. Vicinity's image is present, and no pod uses it yet.
func startCluster(t *testing.T) *realCluster {
	t.Helper()
	lab := filepath.Join(t.TempDir(), "lab")
	c := &realCluster{
		docShell: newClientShell(t, filepath.Join(lab, "kubeconfig")),
		lab:      site.Program(t, "lab"),
		labDir:   lab,
	}
	t.Cleanup(func() {
		// t.Context has ended by now.
		if output, err := exec.CommandContext(context.WithoutCancel(t.Context()), c.lab, "down", "--dir", lab).CombinedOutput(); err != nil {
			t.Errorf("lab down: %v\n%s", err, output)
		}
	})
	c.run(t, root, c.lab, "up", "--dir", lab, "--nodes", strconv.Itoa(len(realNodes)), "--install", "none", "--kube-proxy",
		"--proxy-binary", site.Program(t, "proxy"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the proxies' log:\n%s", c.logs(t))
		}
	})
	return c
}

// run returns the output of a command.
func (c *realCluster) run(t *testing.T, dir, name string, arguments ...string) string {
	t.Helper()
	// env finds the program in the user's PATH, which begins with the lab's kubectl. It also runs after the test has
	// ended.
	command := exec.Command("env", append([]string{name}, arguments...)...)
	command.Dir, command.Env = dir, c.env
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	return string(output)
}

// runChapter runs the commands of a chapter of manifests/README.md. It stops at the first command that fails, and returns
// the output.
func (c *realCluster) runChapter(t *testing.T, chapter string) string {
	t.Helper()
	return c.run(t, c.dir, "sh", "-euxc", script(t, manifestsReadme, chapter))
}

// edit replaces texts in a file of my-cluster. texts are pairs of an old and a new text.
func (c *realCluster) edit(t *testing.T, file string, texts ...string) {
	t.Helper()
	path := filepath.Join(c.dir, "my-cluster", file)
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	for pair := range slices.Chunk(texts, 2) {
		if !strings.Contains(string(text), pair[0]) {
			t.Fatalf("%s lacks %q:\n%s", path, pair[0], text)
		}
		text = []byte(strings.Replace(string(text), pair[0], pair[1], 1))
	}
	must.Succeed(t, os.WriteFile(path, text, 0o600))
}

// prepare creates my-cluster with this cluster's values.
func (c *realCluster) prepare(t *testing.T) {
	t.Helper()
	c.runChapter(t, "Before you install")
	c.edit(t, "kustomization.yaml", "newName: images.example/vicinity-proxy", "newName: vicinity-proxy", "newTag: v1.0.0", "newTag: lab")
	c.edit(t, "configmap.yaml", "server: https://control-plane.example:6443", c.kubeProxySetting(t, "server: "),
		`clusterCIDR: ""`, c.kubeProxySetting(t, "clusterCIDR: "))
}

// kubeProxySetting returns a line of kube-proxy's ConfigMap.
func (c *realCluster) kubeProxySetting(t *testing.T, word string) string {
	t.Helper()
	return lineWith(t, c.run(t, c.dir, "kubectl", "-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "yaml"), word)
}

// lineWith returns the first line that begins with a word, without its indentation.
func lineWith(t *testing.T, text, word string) string {
	t.Helper()
	for candidate := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(candidate); strings.HasPrefix(trimmed, word) {
			return trimmed
		}
	}
	t.Fatalf("no line begins with %q in\n%s", word, text)
	return ""
}

// expectServedBy checks the tables of every node, and dials a Service from there.
func (c *realCluster) expectServedBy(t *testing.T, want, unwanted string) {
	t.Helper()
	for _, node := range realNodes {
		tables := strings.Fields(c.exec(t, node, "nft", "list", "tables"))
		if !slices.Contains(tables, want) || slices.Contains(tables, unwanted) {
			t.Errorf("%s has the tables %q; want those of %s, and none of %s", node, tables, want, unwanted)
		}
		address := strings.ReplaceAll(net.JoinHostPort(controlplane.DNS.String(), "53"), ":", "/")
		c.exec(t, node, "timeout", "10", "bash", "-c", "exec 3<>/dev/tcp/"+address)
	}
}

// exec runs a program of this machine in the network namespace of a node.
func (c *realCluster) exec(t *testing.T, node string, program ...string) string {
	t.Helper()
	return c.run(t, c.dir, c.lab, append([]string{"exec", "--dir", c.labDir, node}, program...)...)
}

// readinessRules defines the type NodeReadinessRule, without its schema.
const readinessRules = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: nodereadinessrules.readiness.node.x-k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, a stand-in with no more than the name"}
spec:
  group: readiness.node.x-k8s.io
  names: {kind: NodeReadinessRule, plural: nodereadinessrules, singular: nodereadinessrule, listKind: NodeReadinessRuleList}
  scope: Cluster
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// apply applies a text with kubectl.
func (c *realCluster) apply(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	c.run(t, c.dir, "kubectl", "apply", "-f", path)
}

// TestTheReadmeReplacesKubeProxy follows the documents on real nodes: before the installation, next to kube-proxy, to
// Vicinity and back, with kube-proxy as kubeadm deploys it and the Jobs unchanged. (Its name is short, because the
// paths of the lab's sockets contain it.)
func TestTheReadmeReplacesKubeProxy(t *testing.T) {
	c := startCluster(t)
	c.expectServedBy(t, "kube-proxy", "vicinity")
	c.apply(t, shopNamespace+shopWeb+readinessRules)
	c.runReadCommands(t)
	c.prepare(t)

	c.besideKubeProxy(t)

	c.prepare(t)
	c.runChapter(t, "Replace kube-proxy")
	c.expectServedBy(t, "vicinity", "kube-proxy")
	for _, text := range commandsOf(labTest) {
		c.runCommand(t, text, 0)
	}
	if explained := c.runChapter(t, "Explaining a decision"); !strings.Contains(explained, "10.244.1.7:8080") {
		t.Errorf("explain does not name the endpoint of shop/web:\n%s", explained)
	}

	c.changeKubeconfig(t)
	c.expectServedBy(t, "vicinity", "kube-proxy")

	c.waitForServices(t)
	c.edit(t, "kustomization.yaml", "newName: vicinity-proxy", "newName: docker.io/library/vicinity-proxy") // the same image
	if upgraded := c.runChapter(t, "Upgrade"); !strings.Contains(upgraded, "rolled back") {
		t.Errorf("the Upgrade chapter rolled nothing back:\n%s", upgraded)
	}
	c.expectServedBy(t, "vicinity", "kube-proxy")

	c.run(t, c.dir, "kubectl", "delete", "-k", "my-cluster")
	c.runChapter(t, "Install on a cluster without kube-proxy")
	c.expectServedBy(t, "vicinity", "kube-proxy")

	c.runChapter(t, "Go back to kube-proxy")
	c.expectServedBy(t, "kube-proxy", "vicinity")
	if leftovers := c.run(t, c.dir, "kubectl", "-n", "kube-system", "get", "jobs,pods", "-o", "name"); strings.Contains(leftovers,
		"cleanup") ||
		strings.Contains(leftovers, "vicinity") {
		t.Errorf("leftover objects:\n%s", leftovers)
	}
}

// runReadCommands runs the commands that read the cluster, and those that read the files which kubectl writes of it.
func (s *docShell) runReadCommands(t *testing.T) {
	t.Helper()
	s.runCommand(t, script(t, topReadme, "Forecast the effect"), 0)
	if page, err := os.ReadFile(filepath.Join(s.dir, "forecast.html")); err != nil || !strings.Contains(string(page), "shop/web") {
		t.Errorf("forecast page: %v, %d bytes; want shop/web in it", err, len(page))
	}
	s.runCommand(t, kubectlGet, 0)
	for _, command := range []string{"explain --node node-1", "forecast"} {
		if stdout, _ := s.runCommand(t, "bin/proxy "+command+" --manifests state", 0); !strings.Contains(stdout, "shop/web") {
			t.Errorf("%s of the folder does not name shop/web:\n%s", command, stdout)
		}
	}
}

// besideKubeProxy runs Vicinity next to kube-proxy, and moves Services from kube-proxy to Vicinity.
func (c *realCluster) besideKubeProxy(t *testing.T) {
	t.Helper()
	c.edit(t, "kustomization.yaml", "- ../manifests ", "- ../manifests/beside-kube-proxy ")
	copies, rest, _ := strings.Cut(script(t, manifestsReadme, "Next to kube-proxy, one Service at a time"), "\n")
	c.runCommand(t, copies, 0)
	c.edit(t, "configmap.yaml", `clusterCIDR: ""`, c.kubeProxySetting(t, "clusterCIDR: "))
	c.runCommand(t, rest, 0)
	address := c.run(t, c.dir, "kubectl", "-n", "shop", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	for _, node := range realNodes {
		wait.Until(t, "Vicinity serves shop/web on "+node, func() bool {
			return strings.Contains(c.exec(t, node, "nft", "list", "table", "ip", "vicinity"), address) &&
				!strings.Contains(c.exec(t, node, "nft", "list", "table", "ip", "kube-proxy"), address)
		})
	}
	c.run(t, c.dir, "kubectl", "delete", "-k", "manifests/beside-kube-proxy/all-services")
}

// waitForServices adds the component that makes pods wait for Services, and removes it again.
func (c *realCluster) waitForServices(t *testing.T) {
	t.Helper()
	path := filepath.Join(c.dir, "my-cluster", "kustomization.yaml")
	without, err := os.ReadFile(path)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(path, []byte(string(without)+yamlIn(t, "node-condition/README.md", "- ../manifests/node-condition")), 0o600))
	c.run(t, c.dir, "kubectl", "apply", "-k", "my-cluster")
	c.apply(t, yamlIn(t, "node-condition/README.md", "kind: NodeReadinessRule"))
	for _, node := range realNodes {
		c.run(t, c.dir, "kubectl", "wait", "--for=condition=vicinity.dev/ServicesReady", "--timeout=3m", "node/"+node)
	}
	must.Succeed(t, os.WriteFile(path, without, 0o600))
	c.run(t, c.dir, "sh", "-euxc", script(t, nodeCondition, "Remove it"))
	if leftovers := c.run(t, c.dir, "kubectl", "get", "nodes,validatingadmissionpolicies", "-o", "yaml"); strings.Contains(leftovers,
		"ServicesReady") {
		t.Errorf("the condition still exists:\n%s", leftovers)
	}
}

// yamlIn returns the YAML block of a document below manifests that contains a line.
func yamlIn(t *testing.T, document, line string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, document))
	must.Succeed(t, err)
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		if block, _, _ = strings.Cut(block, "```"); strings.Contains("\n"+block, "\n"+line+"\n") {
			return block
		}
	}
	t.Fatalf("no block has the line %q", line)
	return ""
}

// kubeletTimeout allows for kubelet's updates of mounted files, which take a minute or two.
const kubeletTimeout = 3 * time.Minute

// changeKubeconfig gives the proxies an invalid kubeconfig, which they must ignore, and then a new valid one.
func (c *realCluster) changeKubeconfig(t *testing.T) {
	t.Helper()
	change := func(old, new string) {
		t.Helper()
		c.edit(t, "configmap.yaml", old, new)
		c.runChapter(t, "Change the configuration")
		// kubelet updates a mounted file when it next syncs the pod, within a minute or two. A change of the pod makes it
		// sync now.
		c.run(t, c.dir, "kubectl", "-n", "kube-system", "annotate", "pod", "-l", "app.kubernetes.io/name=vicinity-proxy", "--overwrite",
			"changed-at="+time.Now().Format(time.RFC3339Nano))
	}
	change("current-context: default", "current-context: missing")
	wait.Within(t, kubeletTimeout, "all proxies log that the kubeconfig is invalid", func() bool {
		const rejected = "an updated configuration file cannot be used; keeping the last valid one"
		return strings.Count(c.logs(t), rejected) == len(realNodes)
	})
	if restarts := c.restarts(t); restarts != "0 0" {
		t.Errorf("restarts of the proxies after an invalid kubeconfig: %s, want 0 0", restarts)
	}
	change("    current-context: missing", "    # It is new.\n    current-context: default")
	wait.Within(t, kubeletTimeout, "all proxies were restarted", func() bool { return c.restarts(t) == "1 1" })
	c.run(t, c.dir, "kubectl", "-n", "kube-system", "rollout", "status", "daemonset", "vicinity-proxy", "--timeout=2m")
}

// restarts returns the restart count of each proxy's container, such as "0 0".
func (c *realCluster) restarts(t *testing.T) string {
	t.Helper()
	return c.run(t, c.dir, "kubectl", "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=vicinity-proxy",
		"-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}")
}

// logs returns the logs of all proxies.
func (c *realCluster) logs(t *testing.T) string {
	t.Helper()
	return c.run(t, c.dir, "kubectl", "-n", "kube-system", "logs", "daemonset/vicinity-proxy", "--all-pods", "--prefix")
}
