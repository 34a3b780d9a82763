package config

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/sysctl"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// defaults returns the Settings of a file that sets nothing.
func defaults() Settings {
	return Settings{
		Connection:         Connection{ContentType: "application/vnd.kubernetes.protobuf", QPS: 5, Burst: 10},
		HealthzBindAddress: "0.0.0.0:10256",
		MetricsBindAddress: "127.0.0.1:10249",
		NodePorts:          model.NodePortAddresses{Primary: true},
		ExternalIPs:        true,
		Flagz:              true,
		Statusz:            true,
		SyncPeriod:         30 * time.Second,
		Conntrack: sysctl.Conntrack{
			MaxPerCore: 32768, Min: 131072, TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour,
		},
		LogFormat: "text",
		LogLevel:  slog.LevelInfo,
	}
}

func TestTheFilesOfClustersWorkUnchanged(t *testing.T) {
	pods := func(cidrs ...string) ruleset.LocalTraffic {
		var prefixes []netip.Prefix
		for _, cidr := range cidrs {
			prefixes = append(prefixes, netip.MustParsePrefix(cidr))
		}
		return ruleset.LocalTraffic{Prefixes: prefixes}
	}
	kubeadm := func(change func(*Settings)) Settings {
		settings := defaults()
		settings.Connection.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
		settings.LocalTraffic = pods("10.244.0.0/16")
		change(&settings)
		return settings
	}
	score, eksScore := int32(-999), int32(-998)
	const (
		anyMode   = "mode: nftables is programmed in every mode"
		atRandom  = "ipvs.scheduler: each connection goes to a random endpoint"
		ipvsPause = "ipvs.minSyncPeriod: changes are batched for at most 40 ms, and a sync writes only what changed"
		noMax     = "conntrack.max: removed from kube-proxy; conntrack.maxPerCore and conntrack.min are used"
		noIdle    = "udpIdleTimeout: removed from kube-proxy; it was for mode userspace"
	)
	with := func(change func(*Settings)) Settings {
		settings := defaults()
		change(&settings)
		return settings
	}
	tests := map[string]struct {
		want  Settings
		notes []string
	}{
		"kubeadm-1.15.yaml": {kubeadm(func(s *Settings) { s.OOMScoreAdj = &score }), []string{
			"conntrack.max: removed from kube-proxy; conntrack.maxPerCore and conntrack.min are used",
			"resourceContainer: removed from kube-proxy",
			"udpIdleTimeout: removed from kube-proxy; it was for mode userspace",
		}},
		"kubeadm-1.28-dual-stack.yaml": {kubeadm(func(s *Settings) { s.LocalTraffic = pods("10.244.0.0/16", "fd00:10:244::/56") }), nil},
		"kubeadm-1.31.yaml":            {kubeadm(func(*Settings) {}), nil},
		"kubeadm-1.36-ipv6-nftables.yaml": {kubeadm(func(s *Settings) {
			s.LocalTraffic = pods("fd00:10:244::/56")
			s.HealthzBindAddress, s.MetricsBindAddress = "[::]:10256", "[::1]:10249"
			s.MasqueradeAll, s.SyncPeriod = true, 10*time.Second
		}), []string{
			"nftables.masqueradeBit: no mark is used",
			"nftables.minSyncPeriod: changes are batched for at most 40 ms, and a sync writes only what changed",
		}},
		"kubeadm-1.36-ipvs.yaml": {kubeadm(func(s *Settings) { s.MasqueradeAll, s.SyncPeriod = true, 45*time.Second }), []string{
			"ipvs.scheduler: each connection goes to a random endpoint",
			"ipvs.strictARP: IPVS is not used",
			"mode: nftables is programmed in every mode",
			"featureGates.SidecarContainers: it has no effect in a proxy",
		}},
		"kind.yaml": {with(func(s *Settings) { s.Conntrack.MaxPerCore, s.Conntrack.TCPBeLiberal = 0, true }), []string{
			"metadata: kube-proxy's configuration has none; it is not read", anyMode,
		}},
		"minikube.yaml": {with(func(s *Settings) {
			s.LocalTraffic, s.MetricsBindAddress = pods("10.244.0.0/16"), "0.0.0.0:10249"
			s.Conntrack = sysctl.Conntrack{Min: 131072}
		}), nil},
		"eks-2020.yaml": {with(func(s *Settings) {
			s.Connection.Kubeconfig, s.OOMScoreAdj = "/var/lib/kube-proxy/kubeconfig", &eksScore
			s.MetricsBindAddress = "0.0.0.0:10249"
		}), []string{noMax, "resourceContainer: removed from kube-proxy", noIdle, anyMode}},
		"k0s.yaml": {kubeadm(func(s *Settings) {
			s.MetricsBindAddress, s.Conntrack.MaxPerCore = "0.0.0.0:10249", 0
		}), []string{noIdle, anyMode}},
		"kubespray-ipvs.yaml": {with(func(s *Settings) {
			s.LocalTraffic, s.OOMScoreAdj, s.Node = pods("10.233.64.0/18"), &score, "node1"
		}), []string{atRandom, anyMode, "nftables.syncPeriod: only the section of the file's mode has an effect"}},
		"by-hand-ipvs.yaml": {with(func(s *Settings) {
			s.Connection.Kubeconfig, s.OOMScoreAdj = "/etc/kubernetes/kube-proxy.kubeconfig", &score
			s.LocalTraffic = pods("172.16.0.0/12", "fc00:2222::/112")
		}), []string{
			noMax,
			"ipvs.masqueradeAll: kube-proxy has no such setting in this section, and does not read it; there is iptables.masqueradeAll",
			noIdle, ipvsPause, atRandom, anyMode,
		}},
		"metallb-guide.yaml": {defaults(), []string{
			"strictARP: kube-proxy 1.30 to 1.37 has no such setting; it is not read, nor is ipvs.strictARP", anyMode,
		}},
		// The output of kube-proxy --write-config-to, the same in v1.36.3 and v1.37.2.
		"kube-proxy-1.36-defaults.yaml": {func() Settings {
			settings := defaults()
			settings.OOMScoreAdj = &score
			return settings
		}(), []string{"mode: nftables is programmed in every mode"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file, err := Read(filepath.Join("testdata", name), VicinityConfig{})
			if err != nil {
				t.Fatal(err)
			}
			got, fieldErrors := Resolve(file.Configuration)
			if len(fieldErrors) > 0 {
				t.Errorf("field errors: %v", fieldErrors)
			}
			if diff := cmp.Diff(test.want, got, equateValues); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.notes, file.IgnoredSettings); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

// parse reads a file without settings of our own.
func parse(text []byte) (*Configuration, []string, error) {
	var file File
	err := file.parse(text)
	return file.Configuration, file.IgnoredSettings, err
}

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func TestOnlyTheSectionOfTheFilesModeHasAnEffect(t *testing.T) {
	const others = "only the section of the file's mode has an effect"
	sections := "iptables: {masqueradeAll: true, syncPeriod: 1s}\nipvs: {syncPeriod: 2s}\nnftables: {syncPeriod: 3s}\n"
	tests := map[string]struct {
		masqueradeAll bool
		syncPeriod    time.Duration
		others        []string
	}{
		"":          {true, time.Second, []string{"ipvs.syncPeriod", "nftables.syncPeriod"}},
		"iptables":  {true, time.Second, []string{"ipvs.syncPeriod", "nftables.syncPeriod"}},
		"userspace": {true, time.Second, []string{"ipvs.syncPeriod", "nftables.syncPeriod"}},
		"ipvs":      {true, 2 * time.Second, []string{"iptables.syncPeriod", "nftables.syncPeriod"}},
		"nftables":  {false, 3 * time.Second, []string{"iptables.masqueradeAll", "iptables.syncPeriod", "ipvs.syncPeriod"}},
	}
	for mode, test := range tests {
		t.Run("mode "+mode, func(t *testing.T) {
			c, notes, err := parse([]byte(header + sections + "mode: '" + mode + "'\n"))
			if err != nil {
				t.Fatal(err)
			}
			settings, _ := Resolve(c)
			if settings.MasqueradeAll != test.masqueradeAll || settings.SyncPeriod != test.syncPeriod || c.Mode != "nftables" {
				t.Errorf("masqueradeAll %v, syncPeriod %v, mode %s", settings.MasqueradeAll, settings.SyncPeriod, c.Mode)
			}
			var got []string
			for _, note := range notes {
				if field, reason, _ := strings.Cut(note, ": "); reason == others {
					got = append(got, field)
				}
			}
			if diff := cmp.Diff(test.others, got); diff != "" {
				t.Errorf("ignored settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnInvalidFileIsRejectedWithEveryMistake(t *testing.T) {
	tests := map[string]struct {
		text string
		want string // the error, its lines joined by |
	}{
		"nothing":       {"# nothing\n", "the file is empty; it must have a document of kind " + kind},
		"two documents": {header + "---\n" + header, "lines 2 and 5: the file has two documents of kind " + kind + "; only one is allowed"},
		"a list":        {"[]", `line 1: apiVersion "" and kind "" are not ` + APIVersion + " and " + kind},
		"not YAML":      {header + "mode: [\n", "line 4: did not find expected node content"},
		"an unknown version": {
			"apiVersion: v1\nkind: Pod\n", `line 2: apiVersion "v1" and kind "Pod" are not ` + APIVersion + " and " + kind,
		},
		"the ConfigMap": {
			"apiVersion: v1\nkind: ConfigMap\ndata: {config.conf: ''}\n",
			"the file is a ConfigMap; use the text under its key config.conf, as in a pod that mounts it",
		},
		"a typo":       {header + "clusterCDIR: 10.0.0.0/8\n", "clusterCDIR: unknown field; did you mean clusterCIDR?"},
		"another case": {header + "clusterCidr: 10.0.0.0/8\n", "clusterCidr: unknown field; did you mean clusterCIDR?"},
		"a typo in a section": {
			header + "nftables: {masqeradeAll: true}\n",
			"nftables.masqeradeAll: unknown field; did you mean nftables.masqueradeAll?",
		},
		"a mistyped section": {header + "nftable: {masqueradeAll: true}\n", "nftable: unknown field; did you mean nftables?"},
		"the wrong section":  {header + "tcpBeLiberal: true\n", "tcpBeLiberal: unknown field; did you mean conntrack.tcpBeLiberal?"},
		"a setting of no mode, in a mode's section": {
			header + "ipvs: {clusterCIDR: 10.0.0.0/8}\n", "ipvs.clusterCIDR: unknown field; did you mean clusterCIDR?",
		},
		"a setting of a mode, in no section": {
			header + "masqueradeAll: true\n", "masqueradeAll: unknown field; did you mean iptables.masqueradeAll?",
		},
		"a field twice": {header + "clusterCIDR: 10.0.0.0/8\nclusterCIDR: 10.0.0.0/9\n", "clusterCIDR: duplicate field"},
		"a field twice, as JSON": {
			`{"apiVersion": "` + APIVersion + `", "kind": "` + kind + `", "mode": "ipvs", "mode": "x"}`, "mode: duplicate field",
		},
		"a text for a number": {header + "oomScoreAdj: low\n", "oomScoreAdj: must be int32, not string"},
		"no duration":         {header + "configSyncPeriod: soon\n", `time: invalid duration "soon"`},
		"an unknown mode": {
			header + "mode: nftable\n", `mode: "nftable" must be one of: , iptables, ipvs, nftables, userspace, kernelspace`,
		},
		"several misspelled fields": {
			header + "Mode: ipvs\nclusterCIDRs: []\n",
			"Mode: unknown field; did you mean mode?|clusterCIDRs: unknown field; did you mean clusterCIDR?",
		},
		"several values": {
			header + "clusterCIDR: x\noomScoreAdj: 2000\n",
			`clusterCIDR: "x" is not a CIDR such as 10.244.0.0/16|oomScoreAdj: 2000 is not between -1000 and 1000`,
		},
		"a bridge without a name": {
			header + "detectLocalMode: BridgeInterface\n", "detectLocal.bridgeInterface: detectLocalMode BridgeInterface needs it",
		},
		"a gate that no kube-proxy has": {
			header + "featureGates: {AllowServiceExternalIP: false}\n",
			`featureGates: "AllowServiceExternalIP" is not a feature gate of Kubernetes 1.30 to 1.37; did you mean AllowServiceExternalIPs?`,
		},
		"an invalid bind address": {header + "bindAddress: all\n", `bindAddress: "all" is not an IP address`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := parse([]byte(test.text))
			if err == nil {
				t.Fatal("the file is accepted, want an error")
			}
			if diff := cmp.Diff(test.want, strings.ReplaceAll(err.Error(), "\n", "|")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// kube-proxy starts with all of these (e2e/configuration).
func TestIgnoredSettingsOfAFileAreReported(t *testing.T) {
	const unread = "kube-proxy 1.30 to 1.37 has no such setting; it is not read"
	other := func(field string) string {
		return "kube-proxy has no such setting in this section, and does not read it; there is " + field
	}
	tests := map[string]struct {
		text string
		want string // the notes, joined by |
	}{
		"metadata":            {"metadata: {name: config, labels: {a: b}}\n", "metadata: kube-proxy's configuration has none; it is not read"},
		"another mode's name": {"mode: ipvs\nipvs: {masqueradeAll: true}\n", "ipvs.masqueradeAll: " + other("iptables.masqueradeAll")},
		"the other way":       {"nftables: {strictARP: true}\n", "nftables.strictARP: " + other("ipvs.strictARP")},
		"a section that is not indented": {
			"ipvs:\nstrictARP: true\nscheduler: rr\n",
			"scheduler: " + unread + ", nor is ipvs.scheduler|strictARP: " + unread + ", nor is ipvs.strictARP",
		},
		"a typo in an ignored setting":  {"ipvs: {strictArp: true}\n", "ipvs.strictArp: " + unread + ", nor is ipvs.strictARP"},
		"no similar field":              {"frobnicate: {deep: [true]}\n", "frobnicate: " + unread},
		"no similar field in a section": {"conntrack: {frobnicate: 1s}\n", "conntrack.frobnicate: " + unread},
		"twice, without meaning": {
			"iptables: {masqueradeBit: 14, masqueradeBit: 14}\n", "iptables.masqueradeBit: it is set twice, and has no meaning here",
		},
		"a link without its mode": {
			"detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0, interfaceNamePrefix: veth}\n",
			"detectLocal.interfaceNamePrefix: only detectLocalMode InterfaceNamePrefix uses it",
		},
		"pods' addresses without their mode": {
			"detectLocalMode: NodeCIDR\nclusterCIDR: 10.0.0.0/8,11.0.0.0/8\n", "clusterCIDR: only detectLocalMode ClusterCIDR uses it",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, notes, err := parse([]byte(header + test.text))
			if err != nil {
				t.Fatal(err)
			}
			notes = slices.DeleteFunc(notes, func(note string) bool { return strings.HasPrefix(note, "mode: ") })
			if diff := cmp.Diff(test.want, strings.Join(notes, "|")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheErrorOfAFileNamesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	if _, err := Read(path, VicinityConfig{}); err == nil || !strings.HasPrefix(err.Error(), "read configuration: open "+path) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(header+"mdoe: ipvs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "read configuration " + path + ": mdoe: unknown field; did you mean mode?"
	if _, err := Read(path, VicinityConfig{}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	before := Default()
	before.ClusterCIDR, before.HostnameOverride = "10.244.0.0/16", "node-a"
	path := filepath.Join(t.TempDir(), "config.conf")
	if err := Write(path, before, VicinityConfig{}, nil); err != nil {
		t.Fatal(err)
	}
	file, err := Read(path, VicinityConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, file.Configuration); diff != "" || len(file.IgnoredSettings) > 0 {
		t.Errorf("notes %q; (-written +read):\n%s", file.IgnoredSettings, diff)
	}
}

func TestConfigzIsKubeProxysPage(t *testing.T) {
	page, err := json.Marshal(Configz(Default(), VicinityConfig{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration","apiVersion":"kubeproxy.config.k8s.io/v1alpha1",`
	if !strings.HasPrefix(string(page), want) || !strings.Contains(string(page), `"mode":"nftables"`) {
		t.Errorf("got %s", page)
	}
}

func FuzzAFileIsReadOrRejected(f *testing.F) {
	for _, name := range []string{"kubeadm-1.15.yaml", "kubeadm-1.36-ipvs.yaml", "kube-proxy-1.36-defaults.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(header + "nodePortAddresses: [primary]\nconntrack: {maxPerCore: 0}\nlogging: {vmodule: [{filePattern: a, verbosity: 2}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, _, err := parse(text)
		if err != nil {
			return
		}
		settings, fieldErrors := Resolve(c)
		if len(fieldErrors) > 0 {
			t.Fatalf("the file is accepted with field errors: %v", fieldErrors)
		}
		again, fieldErrors := Resolve(c)
		if diff := cmp.Diff(settings, again, equateValues); diff != "" || len(fieldErrors) > 0 {
			t.Fatalf("resolving again differs: %v\n%s", fieldErrors, diff)
		}
	})
}
