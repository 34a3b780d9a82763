package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func writeKubeconfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConnectionSaysHowTheAPIServerIsReached(t *testing.T) {
	type settings struct {
		Host, Token         string
		QPS                 float32
		Burst               int
		ContentType, Accept string
		UserAgent           string
	}
	const accepts = "application/vnd.kubernetes.protobuf,application/json"
	path := writeKubeconfig(t, kubeconfig)
	for name, test := range map[string]struct {
		given Connection
		want  settings
	}{
		"a kubeconfig names the API server; objects come as protobuf": {Connection{Kubeconfig: path}, settings{
			Host: "https://192.0.2.1:6443", Token: "secret", ContentType: protobuf, Accept: accepts}},
		"an address overrides that of the kubeconfig": {Connection{Kubeconfig: path, Server: "https://192.0.2.2"}, settings{
			Host: "https://192.0.2.2", Token: "secret", ContentType: protobuf, Accept: accepts}},
		"an address alone": {Connection{Server: "http://127.0.0.1:8080"}, settings{
			Host: "http://127.0.0.1:8080", ContentType: protobuf, Accept: accepts}},
		"everything else": {
			Connection{Kubeconfig: path, QPS: 3, Burst: 4, ContentType: "application/json", AcceptContentTypes: "application/json", UserAgent: "me"},
			settings{Host: "https://192.0.2.1:6443", Token: "secret", QPS: 3, Burst: 4, ContentType: "application/json",
				Accept: "application/json", UserAgent: "me"}},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := test.given.Config()
			if err != nil {
				t.Fatal(err)
			}
			got := settings{config.Host, config.BearerToken, config.QPS, config.Burst,
				config.ContentType, config.AcceptContentTypes, config.UserAgent}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Config() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConnectionThatCannotBeMadeSaysWhatToDo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		given Connection
		want  string
	}{
		"nothing is given outside of a cluster": {Connection{}, "give a kubeconfig"},
		"the kubeconfig is missing":             {Connection{Kubeconfig: missing}, missing},
		"the kubeconfig is none":                {Connection{Kubeconfig: writeKubeconfig(t, "{")}, "reading kubeconfig"},
		"the kubeconfig is empty":               {Connection{Kubeconfig: writeKubeconfig(t, "")}, "no configuration has been provided"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := test.given.Config(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Config() = %v, want an error with %q", err, test.want)
			}
		})
	}
}
