package manifests_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// settings reads the config.conf of a ConfigMap as the proxy does. An unknown or ineffective setting fails the test.
func settings(t *testing.T, configMap *corev1.ConfigMap) config.Settings {
	t.Helper()
	path := filepath.Join(t.TempDir(), configFile)
	if err := os.WriteFile(path, []byte(configMap.Data[configFile]), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := config.Read(path, config.VicinityConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range file.IgnoredSettings {
		t.Errorf("the proxy would ignore a setting: %s", note)
	}
	settings, mistakes := config.Resolve(file.Configuration)
	for _, mistake := range mistakes {
		t.Errorf("invalid configuration: %v", mistake)
	}
	return settings
}

func portOf(t *testing.T, address string) int32 {
	t.Helper()
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return int32(parsed.Port())
}

func TestTheConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		objects                      documents
		kubeconfig, healthz, metrics string
	}{
		"full": {
			plain(t, folder), "/var/lib/vicinity/kubeconfig.conf", "0.0.0.0:10256", "127.0.0.1:10249",
		},
		// The ports differ from kube-proxy's 10256 and 10249, and the API server is reached through the Service that
		// kube-proxy serves.
		"beside kube-proxy": {kustomized(t, besideKubeProxy), "", "0.0.0.0:10456", "127.0.0.1:10349"},
	} {
		t.Run(name, func(t *testing.T) {
			configMap := only(t, test.objects.ConfigMaps)
			got := settings(t, configMap)
			if got.Connection.Kubeconfig != test.kubeconfig || got.HealthzBindAddress != test.healthz || got.MetricsBindAddress != test.metrics {
				t.Errorf("got kubeconfig %q, health %s and metrics %s; want %q, %s and %s", got.Connection.Kubeconfig, got.HealthzBindAddress,
					got.MetricsBindAddress, test.kubeconfig, test.healthz, test.metrics)
			}
			testNoOwnSettings(t, configMap.Data[configFile])
			testMount(t, only(t, test.objects.DaemonSets).Spec.Template.Spec, configMap, test.kubeconfig)
			testProbes(t, only(t, test.objects.DaemonSets).Spec.Template.Spec.Containers[0], portOf(t, got.HealthzBindAddress))
		})
	}
}

// testNoOwnSettings checks that the manifests contain no document of our own. An earlier version may not know its
// settings and would not start: an update could not be rolled back, and a proxy that restarts before its node is
// updated would fail.
func testNoOwnSettings(t *testing.T, file string) {
	t.Helper()
	want := map[string]any{"apiVersion": config.VicinityAPIVersion, "kind": config.VicinityKind}
	for document := range strings.SplitSeq(file, "\n---\n") {
		var fields map[string]any
		if err := yaml.Unmarshal([]byte(document), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["kind"] == config.VicinityKind && !cmp.Equal(want, fields) {
			t.Errorf("the Vicinity document has %v, want only %v", fields, want)
		}
	}
}

// testMount checks that the named files are where the ConfigMap is mounted.
func testMount(t *testing.T, pod corev1.PodSpec, configMap *corev1.ConfigMap, kubeconfig string) {
	t.Helper()
	volume := corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap.Name},
	}}}
	if diff := cmp.Diff([]corev1.Volume{volume}, pod.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	const mountPath = "/var/lib/vicinity"
	mounts := []corev1.VolumeMount{{Name: "config", ReadOnly: true, MountPath: mountPath}}
	if diff := cmp.Diff(mounts, pod.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	arguments := []string{"run", "--config=" + mountPath + "/" + configFile, "--node=$(NODE_NAME)"}
	if got := pod.Containers[0].Args; len(got) < 3 || !slices.Equal(got[:3], arguments) {
		t.Errorf("arguments %q, want them to begin with %q", got, arguments)
	}
	_, exists := configMap.Data["kubeconfig.conf"]
	if wants := kubeconfig != ""; exists != wants {
		t.Errorf("there is a kubeconfig: %t, want %t", exists, wants)
	}
}

func testProbes(t *testing.T, container corev1.Container, port int32) {
	t.Helper()
	for path, probe := range map[string]*corev1.Probe{"/readyz": container.ReadinessProbe, "/livez": container.LivenessProbe} {
		if probe.HTTPGet.Port.IntVal != port || probe.HTTPGet.Path != path || probe.HTTPGet.Host != "127.0.0.1" {
			t.Errorf("a probe requests %s:%d%s, want port %d and path %s on 127.0.0.1", probe.HTTPGet.Host, probe.HTTPGet.Port.IntVal,
				probe.HTTPGet.Path, port, path)
		}
	}
	liveness := container.LivenessProbe
	if seconds := liveness.FailureThreshold * liveness.PeriodSeconds; seconds < 600 {
		t.Errorf("kubelet restarts a proxy whose rules the kernel rejects after %d s, want at least 600 s", seconds)
	}
}

func TestTheKubeconfigIsTheServiceAccounts(t *testing.T) {
	var got clientcmdv1.Config
	if err := yaml.UnmarshalStrict([]byte(only(t, plain(t, folder).ConfigMaps).Data["kubeconfig.conf"]), &got); err != nil {
		t.Fatal(err)
	}
	want := clientcmdv1.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: "default",
		Clusters: []clientcmdv1.NamedCluster{{Name: "default", Cluster: clientcmdv1.Cluster{
			Server: "https://control-plane.example:6443", CertificateAuthority: inCluster + "/ca.crt",
		}}},
		Contexts: []clientcmdv1.NamedContext{{Name: "default", Context: clientcmdv1.Context{
			Cluster: "default", AuthInfo: "default", Namespace: "default",
		}}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: "default", AuthInfo: clientcmdv1.AuthInfo{TokenFile: inCluster + "/token"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kubeconfig (-want +got):\n%s", diff)
	}
}
