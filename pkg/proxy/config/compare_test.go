package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The wanted lists have the differences: line, setting, value, outcome.
func TestCompare(t *testing.T) {
	always := []string{"0 iptables.localhostNodePorts  differs", "0 nodePortAddresses  differs", "0 oomScoreAdj  differs",
		"0 conntrack.tcpBeLiberal  differs"}
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing is set": {"", append([]string{"0 mode  differs"}, always...)},
		"IPVS": {
			"mode: ipvs\nipvs:\n  scheduler: sh\n  strictARP: true\n  syncPeriod: 10s\n  minSyncPeriod: 5s\n" +
				"nodePortAddresses: [primary]\noomScoreAdj: 0\n",
			[]string{
				"3 mode ipvs differs", "5 ipvs.scheduler sh differs", "6 ipvs.strictARP true differs", "8 ipvs.minSyncPeriod 5s ignored",
				"0 ipvs.tcpTimeout  differs",
			},
		},
		"nftables, and sections of others": {
			"mode: nftables\nnftables:\n  syncPeriod: 10s\n  masqueradeBit: 3\n" +
				"iptables: {masqueradeAll: true}\nipvs: {scheduler: lc}\noomScoreAdj: -999\n",
			[]string{"6 nftables.masqueradeBit 3 ignored", "7 iptables.masqueradeAll true ignored", "8 ipvs.scheduler lc ignored"},
		},
		"iptables, with nothing that differs but the mode": {
			"mode: iptables\niptables: {localhostNodePorts: false}\n" +
				"conntrack: {tcpBeLiberal: true}\nnodePortAddresses: [192.0.2.0/24]\noomScoreAdj: 1\n",
			[]string{"3 mode iptables differs", "4 iptables.localhostNodePorts false ignored"},
		},
		"gates, metadata, and unused settings": {
			"mode: nftables\noomScoreAdj: 1\nmetadata: {name: x}\nfeatureGates:\n  AllowServiceExternalIPs: false\n  WinDSR: true\n" +
				"detectLocalMode: NodeCIDR\nclusterCIDR: 10.0.0.0/8\n",
			[]string{"5 metadata  ignored", "8 featureGates.WinDSR true ignored", "10 clusterCIDR 10.0.0.0/8 ignored"},
		},
		"misspelled fields": {
			"mode: ipvs\nclusterCDIR: 10.0.0.0/8\nipvs: {strictArp: true}\n", []string{"4 clusterCDIR  refused", "5 ipvs.strictArp  ignored"},
		},
		"invalid values": {
			"mode: nftables\nclusterCIDR: everything\noomScoreAdj: 5000\n",
			[]string{"4 clusterCIDR everything refused", "5 oomScoreAdj 5000 refused"},
		},
		"an unknown gate": {
			"mode: nftables\nfeatureGates: {Nobody: true}\noomScoreAdj: 1\n", []string{"4 featureGates Nobody=true refused"},
		},
		"no configuration": {"---\n" + header, []string{"0 the file  refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, result := range compare([]byte(header + test.text)).Results {
				switch isSame := result.Outcome == Same; {
				case !isSame:
					got = append(got, fmt.Sprintf("%d %s %s %s", result.Line, result.Subject, result.Value, result.Outcome))
				case result.Value == "" || result.Line == 0 || result.Effect != "":
					t.Errorf("got %+v; a setting with the same effect must have a value and a line, and no effect", result)
				}
				if (result.Effect == "") != (result.Outcome == Same) {
					t.Errorf("%+v: only a setting with another effect must have a reason", result)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// This covers the files of distributions and each mistake of the other tests.
func TestTheComparisonMatchesAStart(t *testing.T) {
	texts := map[string]string{}
	for _, line := range []string{
		"clusterCDIR: x", "Mode: ipvs", "frobnicate: true", "mode: x", "oomScoreAdj: low", "configSyncPeriod: soon", "mode: [",
		"mode: ipvs\nmode: ipvs", "nodePortAddresses: [x]", "metricsBindAddress: 0.0.0.0:10256", "iptables: {syncPeriod: -1s}",
	} {
		texts[line] = header + line
	}
	shipped, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(shipped) == 0 {
		t.Fatal(shipped, err)
	}
	for _, path := range shipped {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			_, notes, err := parse([]byte(text))
			compared := compare([]byte(text))
			if compared.Starts() != (err == nil) {
				t.Errorf("it starts: %v; error of parse: %v; %+v", compared.Starts(), err, compared.Results)
			}
			for _, note := range notes {
				field, reason, _ := strings.Cut(note, ": ")
				isExplained := func(result SettingResult) bool {
					return result.Subject == field && (result.Outcome == Ignored && result.Effect == reason || result.Outcome == Differs ||
						result.Outcome == Rejected)
				}
				if !slices.ContainsFunc(compared.Results, isExplained) {
					t.Errorf("the comparison lacks the note %q of a start", note)
				}
			}
		})
	}
}

func TestEveryDifferenceIsOfASettingThatKubeProxyHasAndIsInThePage(t *testing.T) {
	page, err := os.ReadFile("../../../manifests/from-iptables-and-ipvs.md")
	if err != nil {
		t.Fatal(err)
	}
	for path := range differences {
		if !slices.Contains(fieldPaths(false), path) {
			t.Errorf("kube-proxy has no %s", path)
		}
		if !strings.Contains(string(page), lastOf(path)) {
			t.Errorf("the page lacks %s", path)
		}
	}
}

func TestCompareNodePorts(t *testing.T) {
	addrs := func(texts ...string) (addrs []netip.Addr) {
		for _, text := range texts {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		return addrs
	}
	node := &model.Node{Addresses: addrs("192.0.2.1", "2001:db8::1")}
	present := addrs("127.0.0.1", "192.0.2.1", "198.51.100.1", "10.244.0.1", "::1", "fe80::1", "2001:db8::1")
	primary, all := model.NodePortAddresses{Primary: true}, model.NodePortAddresses{}
	for name, test := range map[string]struct {
		before, after model.NodePortAddresses
		family        model.Family
		node          *model.Node
		want          SettingResult
	}{
		"on fewer": {all, primary, model.IPv4, node, SettingResult{
			Value: "10.244.0.1, 192.0.2.1, 198.51.100.1", Outcome: Differs, Effect: "served on 192.0.2.1",
			Do: "let clients of 10.244.0.1, 198.51.100.1 dial another address, or add it to nodePortAddresses",
		}},
		"on the only one": {all, primary, model.IPv6, node, SettingResult{Value: "2001:db8::1", Outcome: Same, Effect: "served on 2001:db8::1"}},
		"without the Node": {all, primary, model.IPv6, nil, SettingResult{
			Value: "2001:db8::1", Outcome: Unknown, Effect: "served on the addresses that the Node object names; the Node is unknown",
			Do: "give --kubeconfig FILE, or --manifests PATH with the Node",
		}},
		"on all, as before": {all, all, model.IPv4, nil, SettingResult{
			Value: "10.244.0.1, 192.0.2.1, 198.51.100.1", Outcome: Same, Effect: "served on 10.244.0.1, 192.0.2.1, 198.51.100.1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.Subject = "node ports, " + test.family.String()
			if diff := cmp.Diff(test.want, CompareNodePorts(test.before, test.after, test.family, test.node, present)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
