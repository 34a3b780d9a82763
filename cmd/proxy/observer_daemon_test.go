//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestForeignChangesCountAsRepairedWhenTheRulesAreBack: once a change is counted as repaired, the kernel has the rules
// again.
func TestForeignChangesCountAsRepairedWhenTheRulesAreBack(t *testing.T) {
	namespace := netns.New(t)
	d := startDaemon(t, namespace, "--manifests", stateFolder, "--own-tables", "never")
	const repaired = `vicinity_nft_external_changes_total{ip_family="IPv4",stage="repaired"} `
	if _, page := d.get(t, "127.0.0.1:10249", "/metrics"); !strings.Contains(page, repaired+"0\n") {
		t.Errorf("/metrics lacks %q before the first change", repaired+"0")
	}
	for _, change := range []string{"flush map ip vicinity services", "delete table ip vicinity"} {
		_, before := d.get(t, "127.0.0.1:10249", "/metrics")
		namespace.NFT(strings.Fields(change)...)
		wait.Until(t, "one more change is repaired after "+change, func() bool {
			_, page := d.get(t, "127.0.0.1:10249", "/metrics")
			return firstLineWith(page, repaired) != firstLineWith(before, repaired)
		})
		if got := listRules(namespace); !strings.Contains(got, webElement) {
			t.Errorf("%s is counted as repaired, but the kernel lacks %q:\n%s", change, webElement, got)
		}
	}
	d.stop(t)
}

// firstLineWith returns the first line of a page that begins with a text; empty if there is none.
func firstLineWith(page, beginning string) string {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, beginning) {
			return line
		}
	}
	return ""
}
