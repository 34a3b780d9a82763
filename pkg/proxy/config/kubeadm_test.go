package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
)

// kubeadmFile returns a file for 'kubeadm init --config', with the given document of kube-proxy.
func kubeadmFile(document string) string {
	return `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: [{name: node-ip, value: 192.0.2.1}]}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {podSubnet: 10.244.0.0/16}
---
` + document + `---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
`
}

// Only kube-proxy's document is read, and the others are reported.
func TestKubeProxysDocumentOfKubeadmsFileIsRead(t *testing.T) {
	file := File{vicinityConfig: VicinityConfig{Fields: map[string]bool{"dnsTTL": false}}}
	text := kubeadmFile(header + "mode: nftables\nclusterCIDR: 10.244.0.0/16\n---\n" + vicinityHeader + "dnsTTL: 7s\n")
	if err := file.parse([]byte(text)); err != nil || file.Configuration.ClusterCIDR != "10.244.0.0/16" ||
		file.VicinityFields["dnsTTL"] != "7s" {
		t.Fatalf("%v, clusterCIDR %q, own %v", err, file.Configuration.ClusterCIDR, file.VicinityFields)
	}
	want := []string{
		"InitConfiguration: a document of kubeadm; it is not read", "ClusterConfiguration: a document of kubeadm; it is not read",
		"KubeletConfiguration: a document of the kubelet; it is not read",
	}
	if diff := cmp.Diff(want, file.IgnoredSettings); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	compared := compare([]byte(text))
	var got []string
	for _, result := range compared.Results {
		if strings.HasSuffix(result.Subject, "Configuration") || result.Subject == "clusterCIDR" {
			got = append(got, fmt.Sprintf("%d %s %s: %s", result.Line, result.Subject, result.Outcome, result.Effect))
		}
	}
	want = []string{
		"2 InitConfiguration ignored: a document of kubeadm; it is not read",
		"6 ClusterConfiguration ignored: a document of kubeadm; it is not read",
		"12 clusterCIDR same: ",
		"19 KubeletConfiguration ignored: a document of the kubelet; it is not read",
	}
	if diff := cmp.Diff(want, got); diff != "" || !compared.Starts() {
		t.Errorf("it starts: %t; results (-want +got):\n%s", compared.Starts(), diff)
	}
}

func TestAFileWithUnknownDocumentsIsRejected(t *testing.T) {
	for title, test := range map[string]struct{ text, want string }{
		"kube-proxy's twice": {kubeadmFile(header + "---\n" + header),
			"lines 10 and 13: the file has two documents of kind KubeProxyConfiguration; only one is allowed"},
		"none of kube-proxy": {kubeadmFile(""), "the file has no document of kind KubeProxyConfiguration, but InitConfiguration"},
		"the scheduler's": {kubeadmFile(header) + "---\napiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n",
			`apiVersion "kubescheduler.config.k8s.io/v1" and kind "KubeSchedulerConfiguration" are not ` + APIVersion + " and " + kind},
		"no YAML among kubeadm's": {"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: *\n---\n" + header,
			`line 3: the value begins with "*", which means something else in YAML; quote it`},
		"a value that is syntax": {kubeadmFile(header + "bindAddress: *\n"),
			`line 11: the value begins with "*", which means something else in YAML; quote it`},
	} {
		err := (&File{}).parse([]byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", title, err, test.want)
		}
		if compared := compare([]byte(test.text)); compared.Starts() || !strings.Contains(compared.Results[0].Effect, test.want) {
			t.Errorf("%s: compare returned %+v, want %s", title, compared.Results, test.want)
		}
	}
}

// A change of any document is an update. Only a restart shows whether it matters.
func TestAChangeOfKubeadmsFileIsAnUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeadm.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(kubeadmFile(header))
	read, err := Read(path, VicinityConfig{})
	if err != nil {
		t.Fatal(err)
	}
	watched := read.Watched()
	write(kubeadmFile(header + "---\n" + header))
	if err := watched.Check(); err == nil {
		t.Error("two documents for kube-proxy are accepted as an update")
	}
	write(kubeadmFile(header + "clusterCIDR: 10.0.0.0/8\n"))
	if err := watched.Watch(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, filewatch.ErrUpdated) {
		t.Errorf("the watch ends with %v", err)
	}
}
