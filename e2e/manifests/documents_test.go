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
	by  runner
	why string
}

// runner is the name of a test that runs commands.
type runner string

const (
	onFiles      runner = "TestCommandsAboutFiles"
	onNode       runner = "TestCommandsAboutAFolderOfManifests"
	inLab        runner = "TestTheReadmeReplacesKubeProxy"
	onNeighbours runner = "the tests of e2e/neighbours"
)

// chapters map each chapter to the test that runs the commands in its blocks, all of them in their order.
var chapters = map[string]commandRunner{
	topReadme + ": Install":                                         {by: onNode},
	manifestsReadme + ": Before you install":                        {by: inLab},
	manifestsReadme + ": Replace kube-proxy":                        {by: inLab},
	manifestsReadme + ": Go back to kube-proxy":                     {by: inLab},
	coexistence + ": Other programs":                                {by: onNeighbours},
	topReadme + ": Forecast the effect":                             {by: inLab},
	manifestsReadme + ": Change the configuration":                  {by: inLab},
	manifestsReadme + ": Install on a cluster without kube-proxy":   {by: inLab},
	nodeCondition + ": Remove it":                                   {by: inLab},
	manifestsReadme + ": Explaining a decision":                     {by: inLab},
	manifestsReadme + ": Next to kube-proxy, one Service at a time": {by: inLab},
	manifestsReadme + ": Upgrade":                                   {by: inLab},
}

// kubectlGet writes a cluster's files, which other commands read.
const kubectlGet = "mkdir -p state && kubectl get services,endpointslices,nodes -A -o yaml > state/cluster.yaml      # any folder will do"

// apart are the commands in sentences, and those that are not run with their chapter.
var apart = map[string]commandRunner{
	"make demo    # six nodes in three zones, on this machine, nothing installed": {why: "TestTheDemo of e2e/demo plays it"},

	"make test    # run every test": {why: "it runs this test"},
	"make test":                     {why: "it runs this test"},
	"make build":                    {why: "CI runs it before the tests"},
	"make build-proxy":              {why: "CI runs it before the tests, with make build"},
	"make help":                     {why: "it prints what stands in the Makefile"},
	"make lab":                      {why: "CI runs the lab with make e2e, and the tests of e2e/lab do"},
	"make release VERSION=v0.1.0":   {why: "the tests of ./release run the program that it runs"},
	"make bench":                    {why: "it takes an hour, and asserts nothing"},

	"bin/proxy forecast --manifests e2e/forecast/shop    # nine Nodes and ten Services in this repository": {by: onFiles},

	"--evacuate zone-b":                                 {by: onFiles},
	"--scale shop/web=zone-a:6":                         {by: onFiles},
	"--annotate 'shop/cart vicinity.dev/max-load=120%'": {by: onFiles},
	"--max-load 150% --min-in-zone 80% --max-refused 0": {by: onFiles},
	"--without-nodes SELECTOR":                          {why: "SELECTOR is for the reader to say"},
	"--own-tables never":                                {why: "a flag of proxy run, with which the tests of cmd/proxy run it"},
	"kubectl vicinity forecast":                         {why: "TestThePluginFindsTheClusterAsKubectlDoes of cmd/proxy"},
	"proxy run --check --config FILE":                   {why: "FILE is the reader's; the tests of cmd/proxy check such files"},

	kubectlGet: {by: inLab},

	"kubectl get servicecidrs -o yaml > state/servicecidrs.yaml": {by: inLab},
	"nft list ruleset":                                        {by: onNode},
	"kubectl apply -f manifests/":                             {why: "TestARealAPIServerTakesTheManifests does that"},
	"kubectl apply -k manifests":                              {why: "TestARealAPIServerTakesTheManifests does that"},
	"kubectl apply -k manifests/beside-kube-proxy":            {why: "TestARealAPIServerTakesTheManifests does that"},
	"kubectl apply -k manifests/webhook":                      {why: "the tests of e2e/webhook/installation do that"},
	"kubectl -n kube-system get configmap kube-proxy -o yaml": {by: inLab},
	"kubectl -n default get endpointslices kubernetes":        {by: inLab},

	"kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'":     {by: inLab},
	"kubectl -n kube-system describe pod -l app.kubernetes.io/name=vicinity-proxy": {by: inLab},

	"kubectl -n kube-system exec daemonset/vicinity-proxy -- /proxy status": {why: "the suites run /proxy status in a pod of the lab"},

	"kubectl create token":                           {why: "a name without arguments; e2e/nodecondition tries what is said of it"},
	"kubectl delete -k":                              {why: "a name without its folder, which is that of the command above it"},
	"nft list table ip vicinity | grep CLUSTER-IP":   {why: "CLUSTER-IP is for the reader to say"},
	"nft list table ip kube-proxy | grep CLUSTER-IP": {why: "CLUSTER-IP is for the reader to say"},
	"nft delete table ip kube-proxy":                 {why: "the Jobs before it do the same, in the lab"},
	"nft delete table ip6 kube-proxy":                {why: "the Jobs before it do the same, in the lab"},
	"ufw deny 30010":                                 {why: "it is said to do nothing, and TestUFWAsShipped of e2e/neighbours tries that"},

	"docker buildx build -f Dockerfile.proxy --platform linux/amd64,linux/arm64 --build-arg VERSION=v1.0.0 " +
		"--tag images.example/vicinity-proxy:v1.0.0 --push .": {why: "it needs docker; dockerfile_test.go runs what the file says"},
	"docker buildx build": {why: "the document says that it was not tried"},
}

// TestEveryCommandHasARunner checks that each command which no test runs is in the list with a reason, and that the
// list has no other.
func TestEveryCommandHasARunner(t *testing.T) {
	unused, empty := map[string]bool{}, map[string]bool{}
	for text := range apart {
		unused[text] = true
	}
	for chapter := range chapters {
		empty[chapter] = true
	}
	for _, document := range []string{topReadme, manifestsReadme, coexistence, nodeCondition} {
		for _, command := range shown.Commands(t, document) {
			chapter := document + ": " + command.Chapter
			_, isApart := apart[command.Text]
			delete(unused, command.Text)
			if !command.Inline {
				delete(empty, chapter)
			}
			if !isApart && (command.Inline || chapters[chapter] == commandRunner{}) {
				t.Errorf("%s: no test runs this; say in documents_test.go which one should, or why none can:\n%s", chapter, command.Text)
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
	for text := range apart {
		without = append(without, text)
	}
	return shown.Script(t, document, chapter, without...)
}

// alone returns the commands that a test runs one by one.
func alone(by runner) []string {
	var all []string
	for text, runner := range apart {
		if runner.by == by {
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return all
}

// reader runs a document's commands in a folder that looks like the repository's root.
type reader struct {
	dir string
	env []string
}

// newReader creates the folder, with the programs that were built.
func newReader(t *testing.T, env ...string) *reader {
	t.Helper()
	r := &reader{dir: t.TempDir(), env: append(os.Environ(), env...)}
	absolute, err := filepath.Abs(root)
	must.Succeed(t, err)
	must.Succeed(t, os.Mkdir(filepath.Join(r.dir, "bin"), 0o755))
	for _, name := range []string{"proxy", "webhook"} {
		site.Program(t, name)
		must.Succeed(t, os.Symlink(filepath.Join(absolute, "bin", name), filepath.Join(r.dir, "bin", name)))
	}
	must.Succeed(t, os.Symlink(filepath.Join(absolute, "e2e"), filepath.Join(r.dir, "e2e")))
	must.Succeed(t, os.CopyFS(filepath.Join(r.dir, "manifests"), os.DirFS(folder)))
	return r
}

// newClient returns a reader with the lab's kubectl and cluster-admin rights.
func newClient(t *testing.T, kubeconfig string) *reader {
	t.Helper()
	return newReader(t, "KUBECONFIG="+kubeconfig, "PATH="+programs(t).Folder(binaries.Kubernetes)+":"+os.Getenv("PATH"))
}

// command returns a command of a document. It runs as root, so sudo does nothing and may be missing.
func (r *reader) command(text string) *exec.Cmd {
	command := exec.Command("sh", "-euc", `sudo() { "$@"; }; `+text)
	command.Dir, command.Env = r.dir, r.env
	return command
}

// types runs a command that must end with this exit status, and returns its output.
func (r *reader) types(t *testing.T, text string, status int) (stdout, stderr string) {
	t.Helper()
	command := r.command(text)
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	err := command.Run()
	if ended, is := errors.AsType[*exec.ExitError](err); is && ended.ExitCode() == status {
		err = nil
	} else if err == nil && status != 0 {
		err = fmt.Errorf("it ends with status 0, want %d", status)
	}
	if err != nil {
		t.Errorf("%s\n%v\n%s\n%s", text, err, complaints.String(), out.String())
	}
	return out.String(), complaints.String()
}

// TestCommandsAboutFiles runs the commands that need no cluster. Additional flags of a forecast are added to the
// forecast of the sample.
func TestCommandsAboutFiles(t *testing.T) {
	r := newReader(t)
	const forecast = "bin/proxy forecast --manifests e2e/forecast/shop "
	for _, text := range alone(onFiles) {
		status := 0
		if strings.HasPrefix(text, "--max-load") { // a gate, which the sample does not pass
			status = 1
		}
		if strings.HasPrefix(text, "--") {
			text = forecast + text
		}
		if stdout, _ := r.types(t, text, status); !strings.Contains(stdout, "shop/") {
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
	r := newReader(t)
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
	stdout, stderr := r.types(t, command, 1)
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
	r := newReader(t)
	must.Succeed(t, os.Mkdir(filepath.Join(r.dir, "state"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, "state", "cluster.yaml"), []byte(shopCluster), 0o600))
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
		t.Fatalf("these commands run no proxy, and then clean up:\n%s", strings.Join(lines, "\n"))
	}
	for _, line := range lines[:run] {
		if stdout, _ := r.types(t, line, 0); !strings.Contains(line, ">") && !strings.Contains(stdout, "shop/web") {
			t.Errorf("%s\nsays nothing of shop/web:\n%s", line, stdout)
		}
	}
	proxy := site.Start(t, node.Namespace, r.command("exec "+strings.TrimPrefix(lines[run], "sudo ")))
	proxy.WaitFor(t, "the proxy has written its rules", func() error {
		_, err := site.Page(node.Namespace, "127.0.0.1:10256", "/readyz")
		return err
	})
	types := func(line string) string {
		printed, err := node.Run(r.command(line))
		must.Succeed(t, err)
		return printed
	}
	for _, line := range lines[run+1 : cleanup] {
		types(line)
	}
	for _, text := range alone(onNode) {
		if printed := types(text); !strings.Contains(printed, "shop/web") {
			t.Errorf("%s\nsays nothing of shop/web:\n%s", text, printed)
		}
	}
	must.Succeed(t, proxy.Stop(wait.Timeout)) // like Ctrl-C: a running proxy would restore its tables
	for _, line := range lines[cleanup:] {
		types(line)
	}
	if tables := types("nft list tables"); tables != "" {
		t.Errorf("after the cleanup there are the tables %q", tables)
	}
}
