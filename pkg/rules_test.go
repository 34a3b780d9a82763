package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		folder, imports string
		want            []string
	}{
		"the standard library is everybody's": {"pkg/proxy", `"context"; "net/http"`, nil},
		"a package of ours that is listed":    {"pkg/ruleset", `"github.com/vicinity-proxy/vicinity/pkg/model"`, nil},
		"a package of ours that is not": {
			"pkg/model", `"github.com/vicinity-proxy/vicinity/pkg/selection"`, []string{"pkg/model must not import pkg/selection"},
		},
		"the proxy does not reach for the kernel": {
			"pkg/proxy", `"github.com/vicinity-proxy/vicinity/pkg/nft"`, []string{"pkg/proxy must not import pkg/nft"},
		},
		"only nft speaks nftables": {
			"e2e/demo", `"github.com/google/nftables/expr"`, []string{"e2e/demo must not import github.com/google/nftables/expr"},
		},
		"nft does": {"pkg/nft", `"github.com/google/nftables/expr"`, nil},
		"only source knows Kubernetes' objects": {
			"pkg/proxy", `"k8s.io/api/core/v1"`, []string{"pkg/proxy must not import k8s.io/api/core/v1"},
		},
		"a module whose name only begins alike": {
			"pkg/source", `"k8s.io/apiserver"`, []string{"pkg/source must not import k8s.io/apiserver"},
		},
		"a program has nothing that is for tests": {
			"cmd/proxy", `"github.com/vicinity-proxy/vicinity/pkg/netnstest"`,
			[]string{"cmd/proxy imports pkg/netnstest, which is for tests only"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			layer, ok := layerOf(c.folder)
			if !ok {
				t.Fatalf("%s has no layer", c.folder)
			}
			got := layer.violations(parsed(t, c.folder, "package p\nimport ("+c.imports+")"))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
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
