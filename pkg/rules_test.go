package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// parsed is a folder with one file of the given text.
func parsed(t *testing.T, folder, text string) source {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "file.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return source{folder: folder, files: []*ast.File{file}}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		folder, imported string
		allowed          bool
	}{
		"the standard library is for every package":     {"pkg/proxy/syncer", "net/http", true},
		"the proxy has a source":                        {"pkg/proxy/daemon", module + "pkg/proxy/source/manifests", true},
		"the proxy does not know the webhook":           {"pkg/proxy/daemon", module + "pkg/webhook/rules", false},
		"the webhook does not know the proxy":           {"pkg/webhook/server", module + "pkg/proxy/config", false},
		"the webhook does not know what is decided":     {"pkg/webhook/rules", module + "pkg/selection", false},
		"nor a plain Service":                           {"pkg/webhook/cache", module + "pkg/model", false},
		"the webhook knows the words":                   {"pkg/webhook/rules", module + "pkg/policy", true},
		"what both have knows neither":                  {"pkg/cli", module + "pkg/proxy/config", false},
		"a pure package has a pure one":                 {"pkg/proxy/ruleset", module + "pkg/selection", true},
		"a pure package has no connection":              {"pkg/proxy/source/convert", module + "pkg/kube", false},
		"nor a client":                                  {"pkg/model", "k8s.io/client-go/kubernetes", false},
		"nor a log":                                     {"pkg/model", "log/slog", false},
		"conversion knows Kubernetes' objects":          {"pkg/proxy/source/convert", "k8s.io/api/core/v1", true},
		"the sentence does not reach for the kernel":    {"pkg/proxy/syncer", module + "pkg/proxy/kernel/nft", false},
		"only nft speaks nftables":                      {"e2e/demo", "github.com/google/nftables/expr", false},
		"nor does probe":                                {"pkg/proxy/traffic/reachability/probe", "github.com/vishvananda/netlink", false},
		"the kernel's packages know no traffic":         {"pkg/proxy/kernel/conntrack", module + "pkg/proxy/traffic/serviceindex", false},
		"traffic knows the kernel's packages":           {"pkg/proxy/traffic/serviceindex", module + "pkg/proxy/kernel/conntrack", true},
		"only the audit and the daemon know the sync":   {"pkg/proxy/report/metrics", module + "pkg/proxy/syncer", false},
		"the audit does":                                {"pkg/proxy/analysis/drift", module + "pkg/proxy/syncer", true},
		"nor does a pure package beside it":             {"pkg/proxy/analysis/explain", module + "pkg/proxy/syncer", false},
		"what is for tests knows no tests of a cluster": {"pkg/testkit/reserve", module + "e2e/lab/process", false},
		"nft does":                                      {"pkg/proxy/kernel/nft", "github.com/google/nftables/expr", true},
		"a module whose name only begins alike":         {"pkg/model", "k8s.io/client-gopher", true},
		"a program has nothing that is for tests":       {"cmd/proxy", module + "pkg/testkit/netns", false},
		"what is for tests may have more of it":         {"pkg/testkit/rulecases", module + "pkg/testkit/netns", true},
		"the lab looks at Vicinity from outside":        {"e2e/lab/cluster", module + "pkg/manifest", false},
		"a new package below pkg is one that both have": {"pkg/new", module + "pkg/webhook/rules", false},
	} {
		t.Run(name, func(t *testing.T) {
			found := violations(parsed(t, c.folder, "package p\nimport "+strconv.Quote(c.imported)))
			if c.allowed != (len(found) == 0) {
				t.Errorf("violations %q; want none: %v", found, c.allowed)
			}
		})
	}
}

func TestImpuritiesAreFound(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a duration is no clock":                 {"package p\nimport \"time\"\nconst second = time.Second", ""},
		"an address is no socket":                {"package p\nimport \"net/netip\"\nvar addr netip.Addr", ""},
		"a clock":                                {"package p\nimport \"time\"\nvar now = time.Now()", "must not call time.Now"},
		"a clock under another name":             {"package p\nimport t \"time\"\nvar now = t.Now()", "must not call time.Now"},
		"a method that only sounds like a clock": {"package p\nimport \"time\"\nvar _ = time.Time{}.After", ""},
		"a clock in disguise":                    {"package p\nimport \"time\"\nvar clock = time.Now", "must not call time.Now"},
		"a log":                                  {"package p\nimport \"log/slog\"\nvar _ = slog.Info", "must not import log/slog"},
		"chance":                                 {"package p\nimport \"math/rand/v2\"\nvar _ = rand.Int", "must not import math/rand/v2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(impurities(parsed(t, "pkg/model", c.text)), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
