package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// kubeconfigText names an API server to which no request is sent.
const kubeconfigText = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// writeFile writes a file into a new directory, and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOnlyUsedFilesAreWatched(t *testing.T) {
	kubeconfig := writeFile(t, "kubeconfig.conf", kubeconfigText)
	path := writeFile(t, "config.yaml", "apiVersion: "+config.APIVersion+"\nkind: KubeProxyConfiguration\nmode: nftables\n")
	file, err := config.Read(path, config.VicinityConfig{})
	if err != nil {
		t.Fatal(err)
	}
	connection := kube.Connection{Kubeconfig: kubeconfig}
	for name, test := range map[string]struct {
		options Options
		want    []string
	}{
		"no file":              {Options{}, nil},
		"a configuration file": {Options{ConfigFile: file}, []string{path}},
		"a kubeconfig alone":   {Options{Connection: connection}, []string{kubeconfig}},
		"both":                 {Options{ConfigFile: file, Connection: connection}, []string{path, kubeconfig}},
		"a kubeconfig that is unused because of manifests": {
			Options{ConfigFile: file, Connection: connection, Manifests: "x"}, []string{path},
		},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := test.options.configurationFiles(slog.New(slog.DiscardHandler))
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

func TestAnUnusableKubeconfigFailsTheCheck(t *testing.T) {
	kubeconfig := writeFile(t, "kubeconfig.conf", kubeconfigText)
	options := Options{Connection: kube.Connection{Kubeconfig: kubeconfig}}
	files, err := options.configurationFiles(slog.New(slog.DiscardHandler))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, error %v", files, err)
	}
	changed := func(old, new string) string { return strings.Replace(kubeconfigText, old, new, 1) }
	for name, test := range map[string]struct{ text, want string }{
		"empty":             {"", "no configuration has been provided"},
		"not YAML":          {"{", "error loading config file"},
		"no such context":   {changed("current-context: x", "current-context: other"), `has no context "other"; it has "x"`},
		"no server":         {changed(`"https://192.0.2.1:6443"`, `""`), `names the cluster "c", which has no server`},
		"not an address":    {changed("https://192.0.2.1:6443", "https://192.0.2.1:port"), "host must be a URL or a host:port pair"},
		"missing token":     {changed("token: secret", "tokenFile: /missing/token"), "/missing/token"},
		"missing authority": {changed("{server:", "{certificate-authority: /missing/ca.crt, server:"), "/missing/ca.crt"},
		"no certificate":    {changed("{server:", "{certificate-authority-data: eA==, server:"), "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(kubeconfig, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := files[0].Check(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check() = %v, want an error with %s", err, test.want)
			}
		})
	}
}

func TestAMissingKubeconfigIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing")
	options := Options{Connection: kube.Connection{Kubeconfig: path}}
	_, err := options.configurationFiles(slog.New(slog.DiscardHandler))
	if want := "connect to the API server: read a configuration file: open " + path; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one that contains %q", err, want)
	}
}
