package kube

import (
	"fmt"
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

func TestConfig(t *testing.T) {
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

func TestConfigErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		given Connection
		want  string
	}{
		"no settings outside of a cluster": {Connection{}, "give a kubeconfig"},
		"the kubeconfig is missing":        {Connection{Kubeconfig: missing}, missing},
		"an invalid kubeconfig":            {Connection{Kubeconfig: writeKubeconfig(t, "{")}, "read kubeconfig"},
		"the kubeconfig is empty":          {Connection{Kubeconfig: writeKubeconfig(t, "")}, "no configuration has been provided"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := test.given.Config(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Config() = %v, want an error with %q", err, test.want)
			}
		})
	}
}

// TestContextErrors checks that errors contain the file, the context, and the missing part.
func TestContextErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	replaced := func(old, replacement string) string { return strings.Replace(kubeconfig, old, replacement, 1) }
	for name, test := range map[string]struct {
		text string
		with Connection
		want string // after the file name
	}{
		"no such context": {kubeconfig, Connection{Context: "other"}, ` has no context "other"; it has "x"`},
		"no such current one": {replaced("current-context: x", "current-context: other"), Connection{},
			` has no context "other"; it has "x"`},
		"no current one": {replaced("current-context: x", ""), Connection{},
			` has no current context, only "x"`},
		"no such cluster": {replaced("cluster: c,", "cluster: d,"), Connection{},
			`: context "x" names the cluster "d", which is missing; there is "c"`},
		"no clusters": {replaced("[{name: c,", "[] # "), Connection{},
			`: context "x" names the cluster "c", which is missing; there is none`},
		"an empty context": {replaced("cluster: c,", ""), Connection{},
			`: context "x" names no cluster`},
		"no server": {replaced(`server: "https://192.0.2.1:6443"`, ""), Connection{},
			`: context "x" names the cluster "c", which has no server`},
		"no such user": {replaced("user: u}", "user: v}"), Connection{},
			`: context "x" names the user "v", which is missing; there is "u"`},
		"many contexts": {
			"apiVersion: v1\nkind: Config\ncontexts:\n" + "- {name: z}\n- {name: a}\n- {name: b}\n- {name: c}\n" +
				"- {name: d}\n- {name: e}\n- {name: f}\n- {name: g}\n- {name: h}\n- {name: i}\n",
			Connection{Context: "x"}, ` has no context "x"; it has "a", "b", "c", "d", "e", "f", "g", "h", and 2 more`,
		},
	} {
		for _, asKubectl := range []bool{true, false} {
			if !asKubectl && test.with.Context != "" {
				continue
			}
			test.with.Kubeconfig, test.with.AsKubectl = writeKubeconfig(t, test.text), asKubectl
			want := fmt.Sprintf("kubeconfig %q", test.with.Kubeconfig) + test.want
			if _, err := test.with.Config(); err == nil || err.Error() != want {
				t.Errorf("%s: Config() = %v, want %s", name, err, want)
			}
		}
	}
}

// TestServerWithoutContext checks that a kubeconfig without a context is valid together with a server address.
func TestServerWithoutContext(t *testing.T) {
	for _, asKubectl := range []bool{true, false} {
		text := strings.Replace(strings.Replace(kubeconfig, "current-context: x", "", 1), "clusters:", "extensions: [] #", 1)
		connection := Connection{Kubeconfig: writeKubeconfig(t, text), AsKubectl: asKubectl, Server: "https://192.0.2.2"}
		if config, err := connection.Config(); err != nil || config.Host != "https://192.0.2.2" {
			t.Errorf("Config() = %v, %v", config, err)
		}
	}
}

func TestNamespace(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t, kubeconfig))
	inShop := strings.Replace(kubeconfig, "user: u}}", `user: u, namespace: shop}}, {name: z, context: {cluster: c, namespace: ops}}`, 1)
	for _, test := range []struct {
		from Connection
		want string
	}{
		{Connection{}, "default"},
		{Connection{Kubeconfig: writeKubeconfig(t, inShop)}, "shop"},
		{Connection{Kubeconfig: writeKubeconfig(t, inShop), Context: "z"}, "ops"},
	} {
		if got, err := test.from.Namespace(); err != nil || got != test.want {
			t.Errorf("Namespace() = %q, %v, want %q", got, err, test.want)
		}
	}
}
