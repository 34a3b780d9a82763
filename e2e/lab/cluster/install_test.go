package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const manifests = `apiVersion: v1
kind: ServiceAccount
metadata:
  name: vicinity-proxy
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: vicinity-proxy
  namespace: kube-system
data:
  config.conf: |
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    clusterCIDR: ""
    detectLocalMode: ClusterCIDR
  kubeconfig.conf: |
    kind: Config
    clusters:
    - name: default
      cluster:
        certificate-authority: /ca.crt
        server: https://control-plane.example:6443
`

func TestTheManifestsGetTheClustersOwnSettingsAndKeepTheOthers(t *testing.T) {
	patch, err := settings([]byte(manifests), "https://172.30.0.201:6443", map[string]any{"clusterCIDR": "10.244.0.0/16,fd00:244::/32"},
		map[string]string{"dnsBindAddress": proxyDNS})
	if err != nil {
		t.Fatal(err)
	}
	var got configMap
	if err := yaml.Unmarshal(patch, &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "ConfigMap" || got.Metadata["name"] != "vicinity-proxy" || got.Metadata["namespace"] != "kube-system" {
		t.Errorf("the patch is for %s %v, want ConfigMap kube-system/vicinity-proxy", got.Kind, got.Metadata)
	}
	for file, wants := range map[string][]string{
		configFile: {
			"clusterCIDR: 10.244.0.0/16,fd00:244::/32\n", "detectLocalMode: ClusterCIDR\n", "\n---\n",
			"dnsBindAddress: 127.0.0.1:10053\nkind: VicinityProxyConfiguration\n",
		},
		kubeconfigFile: {"server: https://172.30.0.201:6443\n", "certificate-authority: /ca.crt\n"},
	} {
		for _, want := range wants {
			if !strings.Contains(got.Data[file], want) {
				t.Errorf("%s lacks %q:\n%s", file, want, got.Data[file])
			}
		}
	}
}

func TestSettingsNeedNoKubeconfig(t *testing.T) {
	without, _, _ := strings.Cut(manifests, "  kubeconfig.conf")
	patch, err := settings([]byte(without), "https://172.30.0.201:6443", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(patch), kubeconfigFile) {
		t.Errorf("the patch adds a kubeconfig:\n%s", patch)
	}
}

func TestManifestsWithoutAConfigMapAreRejected(t *testing.T) {
	if _, err := settings([]byte("kind: Service\n"), "", nil, nil); !errors.Is(err, errNoConfigMap) {
		t.Errorf("got error %v, want %v", err, errNoConfigMap)
	}
}

func TestAKustomizationChangesTheImageAndAddsThePatches(t *testing.T) {
	type kustomization struct {
		Resources, Components []string
		Images                []map[string]string
		Patches               []map[string]string
	}
	for name, test := range map[string]struct {
		components []string
		patches    [][]byte
		want       []map[string]string
	}{
		"nothing else": {},
		"a component":  {components: []string{"../manifests/xds"}},
		"a setting":    {patches: [][]byte{[]byte("kind: ConfigMap\n")}, want: []map[string]string{{"patch": "kind: ConfigMap\n"}}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := kustomizationOf("some-image", "../manifests", test.components, test.patches...)
			if err != nil {
				t.Fatal(err)
			}
			var got kustomization
			if err := yaml.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			want := kustomization{
				Resources:  []string{"../manifests"},
				Components: test.components,
				Images:     []map[string]string{{"name": "some-image", "newTag": "lab"}},
				Patches:    test.want,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the kustomization differs (-want +got):\n%s", diff)
			}
		})
	}
}
