//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// kubeconfigOf returns a kubeconfig for an API server at a port of the test's namespace. No process listens there.
func kubeconfigOf(port string) string {
	return strings.Replace(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:PORT"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, "PORT", port, 1)
}

// mountedKubeconfig is a kubeconfig in a ConfigMap, as mounted by the kubelet: a link through ..data, which an update
// replaces.
type mountedKubeconfig string

func (m mountedKubeconfig) path() string { return filepath.Join(string(m), "kubeconfig.conf") }

// write stores text in a new directory named version, and atomically makes it the current one.
func (m mountedKubeconfig) write(t *testing.T, version, text string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := string(m)
	must(os.Mkdir(filepath.Join(dir, version), 0o700))
	must(os.WriteFile(filepath.Join(dir, version, "kubeconfig.conf"), []byte(text), 0o600))
	must(os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if _, err := os.Lstat(m.path()); os.IsNotExist(err) {
		must(os.Symlink("..data/kubeconfig.conf", m.path()))
	}
}

func newKubeconfig(t *testing.T) mountedKubeconfig {
	t.Helper()
	m := mountedKubeconfig(t.TempDir())
	m.write(t, "..first", kubeconfigOf("6443"))
	return m
}

// startWithUnreachableServer starts `proxy run` in a new namespace, with a kubeconfig of an unreachable server. log
// returns what it has logged so far, and exited receives its exit status.
func startWithUnreachableServer(t *testing.T, args ...string) (log func() string, exited <-chan int) {
	t.Helper()
	return startWithUnreachableServerIn(t, netns.New(t), args...)
}

func startWithUnreachableServerIn(t *testing.T, namespace *netns.Namespace, args ...string) (log func() string, exited <-chan int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := namespace.Command(program, append(splitArgs("run --node node-a"), args...)...)
	command.Env, command.Stderr = append(os.Environ(), asProxy+"=1"), stderr
	namespace.Do(func() { err = command.Start() })
	if err != nil {
		t.Fatal(err)
	}
	return func() string {
		text, err := os.ReadFile(stderr.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}, exitStatus(t, command)
}

// exitStatus returns a channel that receives the program's exit status. The program is killed when the test ends.
func exitStatus(t *testing.T, command *exec.Cmd) <-chan int {
	t.Helper()
	status, exited := make(chan int, 1), make(chan struct{})
	go func() {
		_ = command.Wait() // the exit status shows errors
		status <- command.ProcessState.ExitCode()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have exited
		<-exited
	})
	return status
}

func TestValidKubeconfigUpdateEndsTheDaemon(t *testing.T) {
	kubeconfig := newKubeconfig(t)
	for name, args := range map[string][]string{
		"of a flag": {"--kubeconfig", kubeconfig.path()},
		"of a file": {"--config", configFile(t, "clientConnection: {kubeconfig: "+kubeconfig.path()+"}")},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig.write(t, "..before "+name, kubeconfigOf("6443"))
			log, exited := startWithUnreachableServer(t, args...)
			wait.Until(t, "the proxy has tried to reach the API server", func() bool {
				return strings.Contains(log(), "watch interrupted")
			})

			kubeconfig.write(t, "..wrong "+name, "{")
			wait.Until(t, "the invalid text is reported", func() bool {
				return strings.Contains(log(), `keeping the last valid one" file=`+kubeconfig.path()+` error=`)
			})
			select {
			case status := <-exited:
				t.Fatalf("the proxy exited with %d because of the invalid text:\n%s", status, log())
			default:
			}

			kubeconfig.write(t, "..right "+name, kubeconfigOf("6444"))
			select {
			case status := <-exited:
				if want := "proxy: a configuration file was updated: " + kubeconfig.path(); status != cli.Failure || !strings.Contains(log(), want) {
					t.Errorf("the proxy exited with %d; want %d and %q:\n%s", status, cli.Failure, want, log())
				}
			case <-time.After(waitTimeout):
				t.Fatalf("the proxy did not exit after the update:\n%s", log())
			}
		})
	}
}
