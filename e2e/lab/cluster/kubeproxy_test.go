package cluster

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

func TestTheLibrariesOfAProgramAreThoseThatTheLinkerFinds(t *testing.T) {
	got := libraries(`	linux-vdso.so.1 (0x00007ffd)
	libnftables.so.1 => /lib/x86_64-linux-gnu/libnftables.so.1 (0x00007f01)
	/lib64/ld-linux-x86-64.so.2 (0x00007f02)
`)
	if diff := cmp.Diff([]string{"/lib/x86_64-linux-gnu/libnftables.so.1", "/lib64/ld-linux-x86-64.so.2"}, got); diff != "" {
		t.Errorf("the libraries differ (-want +got):\n%s", diff)
	}
}

func TestAnImageMayHoldWhatItsProgramRuns(t *testing.T) {
	program := anyProgram(t, "proxy")
	got := assembled(t, image.Image{
		Name: kubeProxyImage, Program: program, Folder: "/usr/local/bin", Files: map[string]string{"/usr/sbin/nft": program},
	})
	config, err := got.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/local/bin/proxy"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("the entry point differs (-want +got):\n%s", diff)
	}
	files := slices.Sorted(maps.Keys(filesOf(t, got)))
	if diff := cmp.Diff([]string{"/usr/local/bin/proxy", "/usr/sbin/nft"}, files); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
}

func TestKubeProxysManifestsAreCompleteOnceTheClustersValuesAreSet(t *testing.T) {
	withLocalhost := &Cluster{config: Config{Options: Options{Localhost: true}}}
	text, err := kubeProxyText("https://172.30.0.201:6443", withLocalhost.proxySettings())
	if err != nil {
		t.Fatal(err)
	}
	for _, placeholder := range []string{"IMAGE", "SERVER", "SETTINGS"} {
		if strings.Contains(text, placeholder+"\n") {
			t.Errorf("%s is still in\n%s", placeholder, text)
		}
	}
	var kinds []string
	var file string
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object configMap
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, object.Kind)
		if object.Kind == "ConfigMap" {
			file = object.Data[configFile]
		}
	}
	var got map[string]any
	if err := yaml.Unmarshal([]byte(file), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"mode": "nftables", "clusterCIDR": clusterCIDR(), "nodePortAddresses": []any{"primary", "localhost"},
		"featureGates": map[string]any{"KubeProxyNFTablesLocalhostNodePorts": true},
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("setting %s differs (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"ServiceAccount", "ClusterRoleBinding", "ConfigMap", "DaemonSet"}, kinds); diff != "" {
		t.Errorf("the kinds differ (-want +got):\n%s", diff)
	}
}
