//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// kubeProxyRules are the translating rules of a kube-proxy in nftables mode; its Services were deleted.
const kubeProxyRules = `
table ip kube-proxy {
	chain services {
		ip daddr 10.96.0.99 tcp dport 80 dnat to 10.244.9.9:80
	}
	chain nat-prerouting {
		type nat hook prerouting priority dstnat
		jump services
	}
}
`

// TestAnotherServiceProxyIsReported covers a daemon that starts while the other proxy's rules exist, and 'status',
// which makes its own check.
func TestAnotherServiceProxyIsReported(t *testing.T) {
	const series = `vicinity_other_service_proxies{proxy="kube-proxy-nftables"} `
	for name, test := range map[string]struct {
		args  []string
		value string // of the series
		exit  int
	}{
		"alone on the node":     {nil, "1", 1},
		"next to another proxy": {[]string{"--service-proxy-name", "vicinity"}, "0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := netns.New(t)
			namespace.Load(kubeProxyRules)
			folder := goodManifests(t)
			if len(test.args) > 0 {
				setProxyNameLabel(t, folder)
			}
			d := startDaemon(t, namespace, append([]string{"--manifests", folder, "--own-tables", "never"}, test.args...)...)
			wait.Until(t, "the metric reports it", func() bool {
				_, page := d.get(t, "127.0.0.1:10249", "/metrics")
				return firstLineWith(page, series) == series+test.value+"\n"
			})
			_, page := d.get(t, "127.0.0.1:10256", "/livez")
			if strings.Contains(page, "kube-proxy in nftables mode also has rules") != (test.exit == 1) {
				t.Errorf("/livez wrongly has or lacks the other proxy: %s", page)
			}
			node, exit := nodeStatusIn(t, namespace)
			others := len(node.Kernel.OtherProxies)
			if exit != test.exit || node.InSync != (test.exit == 0) || !node.Kernel.InSync || others != test.exit {
				t.Errorf("exit status %d, %+v", exit, node.Kernel)
			}
			// A recreated table is newer than the daemon's. 'status' does not wait for the daemon's next check.
			namespace.NFT("delete", "table", "ip", "kube-proxy")
			alone, exit := nodeStatusIn(t, namespace)
			if exit != 0 || !alone.InSync || len(alone.Kernel.OtherProxies) != 0 {
				t.Errorf("without the other proxy's table: exit status %d, %+v", exit, alone.Kernel)
			}
			namespace.Load(kubeProxyRules)
			text := statusIn(t, namespace)
			for _, want := range []string{
				"handles new connections before this proxy: its rules (ip kube-proxy) come first",
				"delete daemonset kube-proxy",
			} {
				if strings.Contains(text.stdout, want) != (test.exit == 1) || text.status != test.exit {
					t.Errorf("after the table was recreated: exit status %d, or the text wrongly has or lacks %q:\n%s", text.status, want, text.stdout)
				}
			}
			result := d.stop(t)
			if got := strings.Count(result.stderr, "another service proxy is on this node"); got != test.exit {
				t.Errorf("the log reports it %d times:\n%s", got, result.stderr)
			}
		})
	}
}

// setProxyNameLabel sets the label service-proxy-name of the Service in a folder of manifests to vicinity.
func setProxyNameLabel(t *testing.T, folder string) {
	t.Helper()
	path := filepath.Join(folder, "shop.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const before = "    annotations:\n"
	label := "    labels: {" + policy.ServiceProxyNameLabel + ": vicinity}\n"
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), before, label+before, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}
