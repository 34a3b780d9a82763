package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// parseSource returns a folder with one file, which has the given text.
func parseSource(t *testing.T, folder, text string) sourceFolder {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "file.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return sourceFolder{folder: folder, files: []*ast.File{file}}
}

func TestViolations(t *testing.T) {
	for name, c := range map[string]struct {
		folder, imported string
		allowed          bool
	}{
		"every package may use the standard library":     {"pkg/proxy/syncer", "net/http", true},
		"the proxy may import its sources":               {"pkg/proxy/daemon", module + "pkg/proxy/source/manifests", true},
		"the proxy must not import the webhook":          {"pkg/proxy/daemon", module + "pkg/webhook/rules", false},
		"the webhook must not import the proxy":          {"pkg/webhook/server", module + "pkg/proxy/config", false},
		"the webhook must not import selection":          {"pkg/webhook/rules", module + "pkg/selection", false},
		"the webhook must not import model":              {"pkg/webhook/cache", module + "pkg/model", false},
		"the webhook may import policy":                  {"pkg/webhook/rules", module + "pkg/policy", true},
		"a shared package must import neither program":   {"pkg/cli", module + "pkg/proxy/config", false},
		"a pure package may import a pure one":           {"pkg/proxy/ruleset", module + "pkg/selection", true},
		"a pure package must not import kube":            {"pkg/proxy/source/convert", module + "pkg/kube", false},
		"a pure package must not import a client":        {"pkg/model", "k8s.io/client-go/kubernetes", false},
		"a pure package must not import a logger":        {"pkg/model", "log/slog", false},
		"convert may import the API types":               {"pkg/proxy/source/convert", "k8s.io/api/core/v1", true},
		"the syncer must not import nft":                 {"pkg/proxy/syncer", module + "pkg/proxy/kernel/nft", false},
		"only nft may import nftables":                   {"e2e/demo", "github.com/google/nftables/expr", false},
		"probe must not import netlink":                  {"pkg/proxy/traffic/reachability/probe", "github.com/vishvananda/netlink", false},
		"kernel packages must not import traffic":        {"pkg/proxy/kernel/conntrack", module + "pkg/proxy/traffic/serviceindex", false},
		"traffic may import kernel packages":             {"pkg/proxy/traffic/serviceindex", module + "pkg/proxy/kernel/conntrack", true},
		"metrics must not import the syncer":             {"pkg/proxy/report/metrics", module + "pkg/proxy/syncer", false},
		"drift may import the syncer":                    {"pkg/proxy/analysis/drift", module + "pkg/proxy/syncer", true},
		"explain must not import the syncer":             {"pkg/proxy/analysis/explain", module + "pkg/proxy/syncer", false},
		"testkit must not import e2e":                    {"pkg/testkit/reserve", module + "e2e/lab/process", false},
		"nft may import nftables":                        {"pkg/proxy/kernel/nft", "github.com/google/nftables/expr", true},
		"a module with the same prefix is not forbidden": {"pkg/model", "k8s.io/client-gopher", true},
		"a program must not import testkit":              {"cmd/proxy", module + "pkg/testkit/netns", false},
		"testkit may import testkit":                     {"pkg/testkit/rulecases", module + "pkg/testkit/netns", true},
		"the lab must not import packages of Vicinity":   {"e2e/lab/cluster", module + "pkg/manifest", false},
		"a new package below pkg is a shared one":        {"pkg/new", module + "pkg/webhook/rules", false},
	} {
		t.Run(name, func(t *testing.T) {
			found := violations(parseSource(t, c.folder, "package p\nimport "+strconv.Quote(c.imported)))
			if c.allowed != (len(found) == 0) {
				t.Errorf("violations %q; want none: %v", found, c.allowed)
			}
		})
	}
}

func TestPurityViolations(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a duration is not a clock":         {"package p\nimport \"time\"\nconst second = time.Second", ""},
		"an address is not a socket":        {"package p\nimport \"net/netip\"\nvar addr netip.Addr", ""},
		"a clock":                           {"package p\nimport \"time\"\nvar now = time.Now()", "must not call time.Now"},
		"a clock under another name":        {"package p\nimport t \"time\"\nvar now = t.Now()", "must not call time.Now"},
		"a method with the name of a clock": {"package p\nimport \"time\"\nvar _ = time.Time{}.After", ""},
		"a clock as a value":                {"package p\nimport \"time\"\nvar clock = time.Now", "must not call time.Now"},
		"a log":                             {"package p\nimport \"log/slog\"\nvar _ = slog.Info", "must not import log/slog"},
		"randomness":                        {"package p\nimport \"math/rand/v2\"\nvar _ = rand.Int", "must not import math/rand/v2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(purityViolations(parseSource(t, "pkg/model", c.text)), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
