package manifests_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	shown "github.com/vicinity-proxy/vicinity/e2e/documents"
	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The documents in which a test runs every command, unchanged.
const (
	topReadme       = "README.md"
	manifestsReadme = "manifests/README.md"
	coexistence     = "manifests/coexistence.md"
	nodeCondition   = "manifests/node-condition/README.md"
)

// commandRunner is the test that runs a command, or the reason why there is none.
type commandRunner struct {
	runner runner
	reason string
}

// runner is the name of a test that runs commands.
type runner string

const (
	filesTest      runner = "TestCommandsAboutFiles"
	nodeTest       runner = "TestCommandsAboutAFolderOfManifests"
	labTest        runner = "TestTheReadmeReplacesKubeProxy"
	neighboursTest runner = "the tests of e2e/neighbours"
)

// chapters map each chapter to the test that runs the commands in its blocks, all of them in their order.
var chapters = map[string]commandRunner{
	topReadme + ": Install":                                         {runner: nodeTest},
	manifestsReadme + ": Before you install":                        {runner: labTest},
	manifestsReadme + ": Replace kube-proxy":                        {runner: labTest},
	manifestsReadme + ": Go back to kube-proxy":                     {runner: labTest},
	coexistence + ": Other programs":                                {runner: neighboursTest},
	topReadme + ": Forecast the effect":                             {runner: labTest},
	manifestsReadme + ": Change the configuration":                  {runner: labTest},
	manifestsReadme + ": Install on a cluster without kube-proxy":   {runner: labTest},
	nodeCondition + ": Remove it":                                   {runner: labTest},
	manifestsReadme + ": Explaining a decision":                     {runner: labTest},
	manifestsReadme + ": Next to kube-proxy, one Service at a time": {runner: labTest},
	manifestsReadme + ": Upgrade":                                   {runner: labTest},
}

// kubectlGet writes a cluster's files, which other commands read.
const kubectlGet = "mkdir -p state && kubectl get services,endpointslices,nodes -A -o yaml > state/cluster.yaml      # any folder will do"

// separateCommands are the commands in sentences, and those that are not run with their chapter.
var separateCommands = map[string]commandRunner{
	"make demo    # six nodes in three zones, on this machine, nothing installed": {reason: "TestTheDemo of e2e/demo runs it"},

	"make test    # run every test": {reason: "it runs this test"},
	"make test":                     {reason: "it runs this test"},
	"make build":                    {reason: "CI runs it before the tests"},
	"make build-proxy":              {reason: "CI runs it before the tests, with make build"},
	"make help":                     {reason: "it prints the Makefile's targets"},
	"make lab":                      {reason: "CI runs the lab with make e2e, and the tests of e2e/lab do"},
	"make release VERSION=v0.1.0":   {reason: "the tests of ./release run the program that it runs"},
	"make bench":                    {reason: "it takes an hour, and asserts nothing"},

	"bin/proxy forecast --manifests e2e/forecast/shop    # nine Nodes and ten Services in this repository": {runner: filesTest},

	"--evacuate zone-b":                                 {runner: filesTest},
	"--scale shop/web=zone-a:6":                         {runner: filesTest},
	"--annotate 'shop/cart vicinity.dev/max-load=120%'": {runner: filesTest},
	"--max-load 150% --min-in-zone 80% --max-refused 0": {runner: filesTest},
	"--without-nodes SELECTOR":                          {reason: "SELECTOR is a placeholder"},
	"--own-tables never":                                {reason: "a flag of proxy run, with which the tests of cmd/proxy run it"},
	"kubectl vicinity forecast":                         {reason: "TestThePluginFindsTheClusterAsKubectlDoes of cmd/proxy"},
	"proxy run --check --config FILE":                   {reason: "FILE is a placeholder; the tests of cmd/proxy check such files"},

	kubectlGet: {runner: labTest},

	"kubectl get servicecidrs -o yaml > state/servicecidrs.yaml": {runner: labTest},
	"nft list ruleset":                                        {runner: nodeTest},
	"kubectl apply -f manifests/":                             {reason: "TestARealAPIServerTakesTheManifests does that"},
	"kubectl apply -k manifests":                              {reason: "TestARealAPIServerTakesTheManifests does that"},
	"kubectl apply -k manifests/beside-kube-proxy":            {reason: "TestARealAPIServerTakesTheManifests does that"},
	"kubectl apply -k manifests/webhook":                      {reason: "the tests of e2e/webhook/installation do that"},
	"kubectl -n kube-system get configmap kube-proxy -o yaml": {runner: labTest},
	"kubectl -n default get endpointslices kubernetes":        {runner: labTest},

	"kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'":     {runner: labTest},
	"kubectl -n kube-system describe pod -l app.kubernetes.io/name=vicinity-proxy": {runner: labTest},

	"kubectl -n kube-system exec daemonset/vicinity-proxy -- /proxy status": {reason: "the suites run /proxy status in a pod of the lab"},

	"kubectl create token":                           {reason: "a command name without arguments; e2e/nodecondition tests the description"},
	"kubectl delete -k":                              {reason: "a name without its folder, which is that of the command above it"},
	"nft list table ip vicinity | grep CLUSTER-IP":   {reason: "CLUSTER-IP is a placeholder"},
	"nft list table ip kube-proxy | grep CLUSTER-IP": {reason: "CLUSTER-IP is a placeholder"},
	"nft delete table ip kube-proxy":                 {reason: "the Jobs before it do the same, in the lab"},
	"nft delete table ip6 kube-proxy":                {reason: "the Jobs before it do the same, in the lab"},
	"ufw deny 30010":                                 {reason: "documented as ineffective, which TestUFWAsShipped of e2e/neighbours checks"},

	"docker buildx build -f Dockerfile.proxy --platform linux/amd64,linux/arm64 --build-arg VERSION=v1.0.0 " +
		"--tag images.example/vicinity-proxy:v1.0.0 --push .": {reason: "it needs docker; dockerfile_test.go runs the file's commands"},
	"docker buildx build": {reason: "the document says that it is untested"},
}

// TestEveryCommandHasARunner checks that each command which no test runs is in the list with a reason, and that the
// list has no other.
func TestEveryCommandHasARunner(t *testing.T) {
	unused, empty := map[string]bool{}, map[string]bool{}
	for text := range separateCommands {
		unused[text] = true
	}
	for chapter := range chapters {
		empty[chapter] = true
	}
	for _, document := range []string{topReadme, manifestsReadme, coexistence, nodeCondition} {
		for _, command := range shown.Commands(t, document) {
			chapter := document + ": " + command.Chapter
			_, isSeparate := separateCommands[command.Text]
			delete(unused, command.Text)
			if !command.Inline {
				delete(empty, chapter)
			}
			if !isSeparate && (command.Inline || chapters[chapter] == commandRunner{}) {
				t.Errorf("%s: no test runs this; add it to documents_test.go with its test, or with a reason:\n%s", chapter, command.Text)
			}
		}
	}
	for text := range unused {
		t.Errorf("no document has the command %q", text)
	}
	for chapter := range empty {
		t.Errorf("%q: there is no such chapter with commands", chapter)
	}
}

// script returns the commands of a chapter as one script, without those that a test runs separately.
func script(t *testing.T, document, chapter string) string {
	t.Helper()
	var without []string
	for text := range separateCommands {
		without = append(without, text)
	}
	return shown.Script(t, document, chapter, without...)
}

// commandsOf returns the commands that a test runs one by one.
func commandsOf(test runner) []string {
	var all []string
	for text, runner := range separateCommands {
		if runner.runner == test {
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return all
}

// docShell runs a document's commands in a folder that looks like the repository's root.
type docShell struct {
	dir string
	env []string
}

// newDocShell creates the folder, with the programs that were built.
func newDocShell(t *testing.T, env ...string) *docShell {
	t.Helper()
	s := &docShell{dir: t.TempDir(), env: append(os.Environ(), env...)}
	absolute, err := filepath.Abs(root)
	must.Succeed(t, err)
	must.Succeed(t, os.Mkdir(filepath.Join(s.dir, "bin"), 0o755))
	for _, name := range []string{"proxy", "webhook"} {
		site.Program(t, name)
		must.Succeed(t, os.Symlink(filepath.Join(absolute, "bin", name), filepath.Join(s.dir, "bin", name)))
	}
	must.Succeed(t, os.Symlink(filepath.Join(absolute, "e2e"), filepath.Join(s.dir, "e2e")))
	must.Succeed(t, os.CopyFS(filepath.Join(s.dir, "manifests"), os.DirFS(folder)))
	return s
}

// newClientShell returns a docShell with the lab's kubectl and cluster-admin rights.
func newClientShell(t *testing.T, kubeconfig string) *docShell {
	t.Helper()
	return newDocShell(t, "KUBECONFIG="+kubeconfig, "PATH="+programs(t).Folder(binaries.Kubernetes)+":"+os.Getenv("PATH"))
}

// command returns a command of a document. It runs as root, so sudo does nothing and may be missing.
func (s *docShell) command(text string) *exec.Cmd {
	command := exec.Command("sh", "-euc", `sudo() { "$@"; }; `+text)
	command.Dir, command.Env = s.dir, s.env
	return command
}

// runCommand runs a command that must end with this exit status, and returns its output.
func (s *docShell) runCommand(t *testing.T, text string, status int) (stdout, stderr string) {
	t.Helper()
	command := s.command(text)
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	err := command.Run()
	if exitErr, ok := errors.AsType[*exec.ExitError](err); ok && exitErr.ExitCode() == status {
		err = nil
	} else if err == nil && status != 0 {
		err = fmt.Errorf("exit status 0, want %d", status)
	}
	if err != nil {
		t.Errorf("%s\n%v\n%s\n%s", text, err, errOut.String(), out.String())
	}
	return out.String(), errOut.String()
}

// TestCommandsAboutFiles runs the commands that need no cluster. Additional flags of a forecast are added to the
// forecast of the sample.
func TestCommandsAboutFiles(t *testing.T) {
	shell := newDocShell(t)
	const forecast = "bin/proxy forecast --manifests e2e/forecast/shop "
	for _, text := range commandsOf(filesTest) {
		status := 0
		if strings.HasPrefix(text, "--max-load") { // a gate, which the sample does not pass
			status = 1
		}
		if strings.HasPrefix(text, "--") {
			text = forecast + text
		}
		if stdout, _ := shell.runCommand(t, text, status); !strings.Contains(stdout, "shop/") {
			t.Errorf("%s\nprints no Service:\n%s", text, stdout)
		}
	}
}

// TestTheReadmesExampleOfAMistakeIsTheWebhooksMessage runs the README's session that checks a folder.
func TestTheReadmesExampleOfAMistakeIsTheWebhooksMessage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, topReadme))
	must.Succeed(t, err)
	_, rest, _ := strings.Cut(string(text), "```console\n$ ")
	session, _, _ := strings.Cut(rest, "\n```")
	command, want, found := strings.Cut(session, "\n")
	if !found {
		t.Fatal("the README shows no session")
	}
	r := newDocShell(t)
	must.Succeed(t, os.Mkdir(filepath.Join(r.dir, "deploy"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, "deploy", "web.yaml"), []byte(`apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  annotations:
    vicinity.dev/topology-keys: "kubernetes.io/hostname, *, topology.kubernetes.io/zone, *"
    service.kubernetes.io/topology-mode: AUTO
spec: {selector: {app: web}, ports: [{port: 80}]}
`), 0o600))
	stdout, stderr := r.runCommand(t, command, 1)
	if diff := cmp.Diff(want, strings.TrimSpace(stdout+stderr)); diff != "" {
		t.Errorf("printed (-README +got):\n%s", diff)
	}
}

// The objects that the commands name, in kubectl's input and output format. A cluster consists of those in shopCluster
// only.
const (
	shopNamespace = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---`
	shopNodes = `
{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1, topology.kubernetes.io/zone: zone-a}}}
---
{apiVersion: v1, kind: Node, metadata: {name: node-2, labels: {kubernetes.io/hostname: node-2, topology.kubernetes.io/zone: zone-b}}}
---`
	shopWeb = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {vicinity.dev/topology-keys: "topology.kubernetes.io/zone, *"}}
spec: {clusterIP: 10.96.0.80, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints:
- {addresses: [10.244.1.7], nodeName: node-1, zone: zone-a, conditions: {ready: true}}
- {addresses: [10.244.3.7], nodeName: node-2, zone: zone-b, conditions: {ready: true}}
`
	shopCluster = shopNodes + shopWeb
)

// TestCommandsAboutAFolderOfManifests first runs the commands for any machine, and then, on a node, those that need
// root.
func TestCommandsAboutAFolderOfManifests(t *testing.T) {
	shell := newDocShell(t)
	must.Succeed(t, os.Mkdir(filepath.Join(shell.dir, "state"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(shell.dir, "state", "cluster.yaml"), []byte(shopCluster), 0o600))
	network, err := fabric.New()
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, network.Close()) })
	node, err := network.AddNode("node-1")
	must.Succeed(t, err)
	lines := strings.Split(script(t, topReadme, "Install"), "\n")
	isRun := func(line string) bool { return strings.HasPrefix(line, "sudo bin/proxy run ") }
	isCleanup := func(line string) bool { return strings.HasPrefix(line, "sudo bin/proxy cleanup") }
	run, cleanup := slices.IndexFunc(lines, isRun), slices.IndexFunc(lines, isCleanup)
	if run < 0 || cleanup < run {
		t.Fatalf("want `proxy run`, and then `proxy cleanup`, in:\n%s", strings.Join(lines, "\n"))
	}
	for _, line := range lines[:run] {
		if stdout, _ := shell.runCommand(t, line, 0); !strings.Contains(line, ">") && !strings.Contains(stdout, "shop/web") {
			t.Errorf("%s\ndoes not print shop/web:\n%s", line, stdout)
		}
	}
	proxy := site.Start(t, node.Namespace, shell.command("exec "+strings.TrimPrefix(lines[run], "sudo ")))
	proxy.WaitFor(t, "the proxy has written its rules", func() error {
		_, err := site.Page(node.Namespace, "127.0.0.1:10256", "/readyz")
		return err
	})
	runOnNode := func(line string) string {
		printed, err := node.Run(shell.command(line))
		must.Succeed(t, err)
		return printed
	}
	for _, line := range lines[run+1 : cleanup] {
		runOnNode(line)
	}
	for _, text := range commandsOf(nodeTest) {
		if printed := runOnNode(text); !strings.Contains(printed, "shop/web") {
			t.Errorf("%s\ndoes not print shop/web:\n%s", text, printed)
		}
	}
	must.Succeed(t, proxy.Stop(wait.Timeout)) // like Ctrl-C: a running proxy would restore its tables
	for _, line := range lines[cleanup:] {
		runOnNode(line)
	}
	if tables := runOnNode("nft list tables"); tables != "" {
		t.Errorf("tables %q remain after the cleanup", tables)
	}
}
