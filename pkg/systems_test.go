package pkg_test

import (
	"os"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestProgramsTypeCheckOnOtherSystems type-checks the programs that a release has for other systems, with everything
// that they import. Compiling them, as `make release` does, takes a hundred times as long.
func TestProgramsTypeCheckOnOtherSystems(t *testing.T) {
	for _, test := range []struct {
		system, processor string
		programs          []string
	}{
		{"linux", "arm64", []string{"./cmd/...", "./pkg/..."}},
		{"darwin", "arm64", []string{"./cmd/webhook", "./pkg/webhook/..."}},
		{"windows", "amd64", []string{"./cmd/webhook", "./pkg/webhook/..."}},
	} {
		t.Run(test.system+"/"+test.processor, func(t *testing.T) {
			found, err := packages.Load(&packages.Config{
				Context: t.Context(), Dir: "..",
				Env: append(os.Environ(), "GOOS="+test.system, "GOARCH="+test.processor, "CGO_ENABLED=0"),
				// Function bodies are checked if there is syntax, which all packages have.
				Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
					packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesSizes,
			}, test.programs...)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) < len(test.programs) {
				t.Fatalf("found %d packages in %v", len(found), test.programs)
			}
			packages.Visit(found, nil, func(p *packages.Package) {
				for _, loadError := range p.Errors {
					t.Error(loadError)
				}
				if p.Types == nil || !p.Types.Complete() {
					t.Errorf("%s was not checked", p.PkgPath)
				}
			})
		})
	}
}
