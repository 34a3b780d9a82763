//go:build lab

package xds

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The lab's folder, relative to this package and to the root of the repository.
const (
	repoRoot  = "../.."
	labFolder = "bin/xds-lab"
	podImage  = "vicinity-xds-client:lab"
)

// TestClientsInALab adds manifests/xds to the manifests as described in its README. Pods have the bootstrap in the
// README, and on each of three nodes they reach the same servers as with plain connections: 34 channels on each.
func TestClientsInALab(t *testing.T) {
	l := newLab(t)
	const services = 34
	var text strings.Builder
	for i, servers := range []int{3, 2, 1} {
		for k := range servers {
			fmt.Fprintf(&text, podYAML, fmt.Sprintf("server-%d-%d", i+1, k), "server", i+1, podImage, "serve", "")
		}
	}
	var targets []string
	for k := range services {
		annotation := ""
		if k%2 == 0 {
			annotation = `, annotations: {vicinity.dev/topology-keys: "kubernetes.io/hostname, *"}`
		}
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Service, metadata: {name: web-%d%s}, spec: {selector: {app: server}, ports: "+
			"[{port: 80, targetPort: 8080}]}}\n", k, annotation)
		targets = append(targets, fmt.Sprintf("xds:///web-%d.default.svc.cluster.local:80", k))
	}
	targets = append(targets, "dns:///web-0.default.svc.cluster.local:80", "dns:///web-1.default.svc.cluster.local:80")
	env := bootstrapOf(t) + fmt.Sprintf("    - {name: TARGETS, value: %q}\n", strings.Join(targets, " "))
	for i := range 3 {
		fmt.Fprintf(&text, podYAML, fmt.Sprintf("client-%d", i+1), "client", i+1, podImage, "call", env)
	}
	file := filepath.Join(t.TempDir(), "pods.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text.String()), 0o600))
	l.kubectl("apply", "-f", file)
	for i, servers := range []int{3, 2, 1} {
		var near, all []string
		for node, count := range []int{3, 2, 1} {
			for k := range count {
				all = append(all, fmt.Sprintf("server-%d-%d", node+1, k))
			}
		}
		for k := range servers {
			near = append(near, fmt.Sprintf("server-%d-%d", i+1, k))
		}
		var last map[string]results
		wait.Success(t, fmt.Sprintf("a round of calls on node-%d without an error, to all servers", i+1), func() error {
			lines := strings.Split(strings.TrimSpace(l.tryKubectl("logs", "--tail=1", fmt.Sprintf("client-%d", i+1))), "\n")
			last = nil
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
				return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
			}
			for k, target := range targets {
				want := all
				if k%2 == 0 {
					want = near
				}
				if got := last[target]; len(got.Answers) != len(want) || len(got.Errors) > 0 {
					return fmt.Errorf("%s: replies %s, errors %s", target, formatCounts(got.Answers), formatCounts(got.Errors))
				}
			}
			return nil
		})
		for k, target := range targets {
			want := all
			if k%2 == 0 {
				want = near
			}
			checkEven(t, fmt.Sprintf("node-%d: %s", i+1, target), want, last[target].Answers)
		}
		t.Logf("node-%d: through xDS with keys %s, without %s; through the kernel %s and %s", i+1, formatCounts(last[targets[0]].Answers),
			formatCounts(last[targets[1]].Answers), formatCounts(last[targets[services]].Answers), formatCounts(last[targets[services+1]].Answers))
	}
}

// podYAML is a format string with a name, an app, a node's number, an image, an argument and more environment
// variables.
const podYAML = `---
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  nodeName: node-%d
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    args: [%s]
    env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
%s`

// bootstrapOf returns the environment variables for pods in the README, except for POD_NAME, which all pods have.
func bootstrapOf(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repoRoot, "manifests/xds/README.md"))
	must.Succeed(t, err)
	_, rest, ok := strings.Cut(string(text), "   - name: GRPC_XDS_BOOTSTRAP_CONFIG\n")
	if !ok {
		t.Fatal("the README has no bootstrap")
	}
	lines, _, _ := strings.Cut(rest, "   ```")
	var env strings.Builder
	env.WriteString("    - name: GRPC_XDS_BOOTSTRAP_CONFIG\n")
	for line := range strings.Lines(lines) {
		env.WriteString(" " + line) // the README's list has one column less indentation
	}
	return env.String()
}

// lab is a cluster of three nodes with the component.
type lab struct {
	t       *testing.T
	program string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	built, err := programs()
	must.Succeed(t, err)
	kubernetes, err := binaries.Build(context.Background(), os.Stderr, binaries.Kubernetes)
	must.Succeed(t, err)
	archive := filepath.Join(t.TempDir(), "client.tar")
	must.Succeed(t, image.WriteArchive(archive, image.Image{Name: podImage, Program: built.Path(binaries.XDS, "xds")}))
	folder := filepath.Join(repoRoot, "bin/xds-lab-manifests")
	must.Succeed(t, os.MkdirAll(folder, 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"),
		[]byte("resources:\n- ../../manifests\ncomponents:\n- ../../manifests/xds\n"), 0o600))
	l := &lab{t, kubernetes.Path(binaries.Kubernetes, "kubectl")}
	t.Cleanup(func() { l.run("bin/lab", "down", "--dir", labFolder) })
	l.run("bin/lab", "up", "--dir", labFolder, "--nodes", "3", "--install", "bin/xds-lab-manifests", "--install-webhook", "none",
		"--images", archive)
	return l
}

// run runs a program in the root of the repository, and fails the test if the program fails.
func (l *lab) run(name string, args ...string) {
	l.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = repoRoot
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		l.t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
}

func (l *lab) kubectl(args ...string) {
	l.t.Helper()
	l.run(l.program, append([]string{"--kubeconfig", filepath.Join(labFolder, "kubeconfig")}, args...)...)
}

// tryKubectl returns everything that kubectl prints, including errors.
func (l *lab) tryKubectl(args ...string) string {
	cmd := exec.Command(l.program, append([]string{"--kubeconfig", filepath.Join(labFolder, "kubeconfig")}, args...)...)
	cmd.Dir = repoRoot
	output, _ := cmd.CombinedOutput() // the output has the error
	return string(output)
}
