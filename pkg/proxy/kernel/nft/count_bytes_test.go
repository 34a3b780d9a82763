//go:build linux

package nft

import (
	"os"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

func TestBytesAreCountedWithoutASettingOrARule(t *testing.T) {
	namespace := netns.New(t)
	setting := func() (value string) {
		namespace.Do(func() {
			text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_acct")
			if err != nil {
				t.Fatal(err)
			}
			value = strings.TrimSpace(string(text))
		})
		return value
	}
	namespace.Do(func() {
		if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_acct", []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	})
	if before := setting(); before != "0" {
		t.Fatalf("the setting is %s before, want 0", before)
	}
	var err error
	namespace.Do(func() { err = CountBytes() })
	if after := setting(); err != nil || after != "1" {
		t.Errorf("the setting is %s afterwards, %v; want 1", after, err)
	}
	if listed := namespace.NFT("list", "ruleset"); strings.TrimSpace(listed) != "" {
		t.Errorf("rules remain:\n%s", listed)
	}
}
