//go:build linux

package sabotage

import (
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

const tables = `
table ip vicinity {
	map services { type ipv4_addr : classid; elements = { 10.96.0.1 : 1:2 }; }
	chain lb {
		counter
	}
}
table ip6 other {
	chain lb {
		counter
	}
}
`

func TestAnActionChangesOnlyVicinitysTable(t *testing.T) {
	t.Parallel()
	for name, removed := range map[string]string{
		"delete-table": "table ip vicinity", "flush-table": "counter", "flush-services": "10.96.0.1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := netns.New(t)
			namespace.Load(tables)
			if before := namespace.NFT("list", "table", "ip", "vicinity"); !strings.Contains(before, removed) {
				t.Fatalf("before: %s\nlacks %s", before, removed)
			}
			if got, want := run(t, namespace, name), "ip vicinity: done\nip6 vicinity: missing\n"; got != want {
				t.Errorf("Run wrote %q, want %q", got, want)
			}
			after := namespace.NFT("list", "ruleset")
			ours, other, _ := strings.Cut(after, "table ip6 other")
			if strings.Contains(ours, removed) {
				t.Errorf("after %s, %s still exists:\n%s", name, removed, after)
			}
			if !strings.Contains(other, "counter") {
				t.Errorf("%s changed another table:\n%s", name, after)
			}
		})
	}
}

func TestATableWithAnOwnerIsRejected(t *testing.T) {
	t.Parallel()
	namespace := netns.New(t)
	ownTable(t, namespace)
	for name := range actions {
		if got, want := run(t, namespace, name), "ip vicinity: refused\nip6 vicinity: missing\n"; got != want {
			t.Errorf("%s: Run wrote %q, want %q", name, got, want)
		}
	}
}

func TestAnUnknownActionIsAnErrorThatNamesTheValidOnes(t *testing.T) {
	t.Parallel()
	err := Run("burn", new(strings.Builder))
	if err == nil || !strings.Contains(err.Error(), "delete-table, flush-services, flush-table") {
		t.Errorf("got error %v", err)
	}
}

func run(t *testing.T, namespace *netns.Namespace, name string) string {
	t.Helper()
	var output strings.Builder
	var err error
	namespace.Do(func() { err = Run(name, &output) })
	if err != nil {
		t.Fatal(err)
	}
	return output.String()
}
