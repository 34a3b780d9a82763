//go:build linux

package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/netnstest"
)

// kubeconfigText names an API server at an address of the test's namespace. Nobody listens there.
const kubeconfigText = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:PORT"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func kubeconfigOf(port string) string { return strings.Replace(kubeconfigText, "PORT", port, 1) }

// mountedKubeconfig is a kubeconfig as kubelet mounts a ConfigMap's: a link through ..data, which an update replaces.
type mountedKubeconfig string

func (m mountedKubeconfig) path() string { return filepath.Join(string(m), "kubeconfig.conf") }

// write makes a version with a name of its own the present one.
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

func TestTheFilesThatAreWatchedAreThoseThatAreUsed(t *testing.T) {
	t.Setenv(inCluster, "10.96.0.1")
	kubeconfig := newKubeconfig(t).path()
	plain, naming := configFile(t, "mode: nftables"), configFile(t, "clientConnection: {kubeconfig: "+kubeconfig+"}")
	for name, test := range map[string]struct {
		line string
		want []string
	}{
		"nothing is named":                 {"", nil},
		"a configuration file":             {"--config " + plain, []string{plain}},
		"a kubeconfig alone":               {"--kubeconfig " + kubeconfig, []string{kubeconfig}},
		"both":                             {"--config " + plain + " --kubeconfig " + kubeconfig, []string{plain, kubeconfig}},
		"a kubeconfig that the file names": {"--config " + naming, []string{naming, kubeconfig}},
		"a kubeconfig that --manifests makes unused": {"--manifests x --config " + naming, []string{naming}},
	} {
		t.Run(name, func(t *testing.T) {
			flags, err := parseRunFlags(t, test.line)
			if err != nil {
				t.Fatal(err)
			}
			files, err := flags.configurationFiles(slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, file := range files {
				got = append(got, file.Path)
				if err := file.Check(); err != nil {
					t.Errorf("%s cannot be used: %v", file.Path, err)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAKubeconfigWithWhichTheProxyCouldNotStartIsWrong(t *testing.T) {
	kubeconfig := newKubeconfig(t)
	flags, err := parseRunFlags(t, "--kubeconfig "+kubeconfig.path())
	if err != nil {
		t.Fatal(err)
	}
	files, err := flags.configurationFiles(slog.New(slog.DiscardHandler))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, error %v", files, err)
	}
	changed := func(old, new string) string { return strings.Replace(kubeconfigOf("6443"), old, new, 1) }
	for version, test := range map[string]struct{ text, told string }{
		"empty":             {"", "no configuration has been provided"},
		"not YAML":          {"{", "error loading config file"},
		"no such context":   {changed("current-context: x", "current-context: other"), "context was not found for specified context: other"},
		"no server":         {changed(`"https://127.0.0.1:6443"`, `""`), "no server found for cluster"},
		"not an address":    {changed("https://127.0.0.1:6443", "https://127.0.0.1:port"), "host must be a URL or a host:port pair"},
		"missing token":     {changed("token: secret", "tokenFile: /missing/token"), "/missing/token"},
		"missing authority": {changed("{server:", "{certificate-authority: /missing/ca.crt, server:"), "/missing/ca.crt"},
		"no certificate":    {changed("{server:", "{certificate-authority-data: eA==, server:"), "certificate"},
	} {
		t.Run(version, func(t *testing.T) {
			kubeconfig.write(t, version, test.text)
			if err := files[0].Check(); err == nil || !strings.Contains(err.Error(), test.told) {
				t.Errorf("Check() = %v, want an error with %s", err, test.told)
			}
		})
	}
}

func TestAMissingKubeconfigIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing")
	flags, err := parseRunFlags(t, "--kubeconfig "+path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = flags.configurationFiles(slog.New(slog.DiscardHandler))
	expectError(t, err, "connect to the API server: read a configuration file: open "+path)
}

// startInVain starts `proxy run` with a kubeconfig that leads nowhere. It returns its log, and how it ends.
func startInVain(t *testing.T, args ...string) (log func() string, ended <-chan int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	namespace := netnstest.New(t)
	command := namespace.Command(program, append(words("run --node node-a"), args...)...)
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
	}, exitOf(t, command)
}

// exitOf waits for a program, and ends it with the test.
func exitOf(t *testing.T, command *exec.Cmd) <-chan int {
	t.Helper()
	status, over := make(chan int, 1), make(chan struct{})
	go func() {
		_ = command.Wait() // what went wrong is in the exit status
		status <- command.ProcessState.ExitCode()
		close(over)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have ended
		<-over
	})
	return status
}

func TestANewKubeconfigEndsTheDaemonUnlessItIsWrong(t *testing.T) {
	kubeconfig := newKubeconfig(t)
	for name, args := range map[string][]string{
		"of a flag": {"--kubeconfig", kubeconfig.path()},
		"of a file": {"--config", configFile(t, "clientConnection: {kubeconfig: "+kubeconfig.path()+"}")},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig.write(t, "..before "+name, kubeconfigOf("6443"))
			log, ended := startInVain(t, args...)
			eventually(t, "the proxy has looked for the API server", func() bool {
				return strings.Contains(log(), "the API server does not tell about a resource")
			})

			kubeconfig.write(t, "..wrong "+name, "{")
			eventually(t, "the wrong text is told", func() bool {
				return strings.Contains(log(), `what it said before stays in force" file=`+kubeconfig.path()+` error=`)
			})
			select {
			case status := <-ended:
				t.Fatalf("the wrong text ended the proxy with %d:\n%s", status, log())
			default:
			}

			kubeconfig.write(t, "..right "+name, kubeconfigOf("6444"))
			select {
			case status := <-ended:
				if want := "proxy: a configuration file was updated: " + kubeconfig.path(); status != cli.Failure || !strings.Contains(log(), want) {
					t.Errorf("the proxy ended with %d; want %d and %q:\n%s", status, cli.Failure, want, log())
				}
			case <-time.After(patience):
				t.Fatalf("the new text does not end the proxy:\n%s", log())
			}
		})
	}
}
