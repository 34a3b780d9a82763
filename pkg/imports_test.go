package pkg_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/vicinity-proxy/vicinity/"

// root is the repository's top folder, seen from this package.
const root = ".."

// source is the non-test Go files of one folder.
type source struct {
	folder string // relative to the root, with slashes
	files  []*ast.File
}

func TestEveryPackageImportsOnlyWhatItsLayerMay(t *testing.T) {
	for _, source := range sources(t) {
		t.Run(source.folder, func(t *testing.T) {
			layer, ok := layerOf(source.folder)
			if !ok {
				t.Fatalf("%s has no layer: add it to layers in layers_test.go", source.folder)
			}
			for _, violation := range layer.violations(source) {
				t.Errorf("%s, because %s", violation, layer.why)
			}
		})
	}
}

func TestPurePackagesKnowNoWorldAndNoClock(t *testing.T) {
	for _, source := range sources(t) {
		if layer, _ := layerOf(source.folder); !layer.pure {
			continue
		}
		t.Run(source.folder, func(t *testing.T) {
			for _, violation := range impurities(source) {
				t.Error(violation)
			}
		})
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, source := range sources(t) {
		t.Run(source.folder, func(t *testing.T) {
			name := source.files[0].Name.Name
			opening := "Package " + name + " "
			if name == "main" {
				opening = "Command " + path.Base(source.folder) + " "
			}
			documented := 0
			for _, file := range source.files {
				if file.Doc == nil {
					continue
				}
				documented++
				if !strings.HasPrefix(file.Doc.Text(), opening) {
					t.Errorf("the doc comment does not begin with %q", opening)
				}
			}
			if documented != 1 {
				t.Errorf("%d files have a doc comment for the package, want one", documented)
			}
		})
	}
}

func TestEveryLayerHasAReasonAndAPackage(t *testing.T) {
	var folders []string
	for _, source := range sources(t) {
		folders = append(folders, source.folder)
	}
	for _, layer := range layers {
		if layer.why == "" {
			t.Errorf("%s: nobody will remember why", layer.folder)
		}
		if !slices.ContainsFunc(folders, func(folder string) bool { return covers(layer.folder, folder) }) {
			t.Errorf("%s: there is no such package", layer.folder)
		}
	}
}

// violations lists the imports of a folder that its layer forbids.
func (l layer) violations(source source) []string {
	var violations []string
	for _, imported := range source.imports() {
		ours, isOurs := strings.CutPrefix(imported, module)
		switch {
		case isOurs && slices.Contains(testOnly, ours):
			violations = append(violations, fmt.Sprintf("%s imports %s, which is for tests only", source.folder, ours))
		case isOurs && !coveredBy(l.ours, ours):
			violations = append(violations, fmt.Sprintf("%s must not import %s", source.folder, ours))
		case !isOurs && !isStandard(imported) && !within(l.others, imported):
			violations = append(violations, fmt.Sprintf("%s must not import %s", source.folder, imported))
		}
	}
	return violations
}

// impurities lists what in a folder's files reaches out for the world.
func impurities(source source) []string {
	var found []string
	for _, imported := range source.imports() {
		if why, ok := impure[imported]; ok {
			found = append(found, fmt.Sprintf("%s is pure and must not import %s: %s", source.folder, imported, why))
		}
	}
	for _, file := range source.files {
		for _, call := range clockCalls(file) {
			found = append(found, fmt.Sprintf("%s is pure and must not call time.%s: time is an argument", source.folder, call))
		}
	}
	return found
}

// clockCalls lists the uses of clocks in a file, under whatever name it imports package time.
func clockCalls(file *ast.File) []string {
	local := "time"
	for _, spec := range file.Imports {
		if spec.Path.Value == `"time"` && spec.Name != nil {
			local = spec.Name.Name
		}
	}
	var calls []string
	ast.Inspect(file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok && clocks[selector.Sel.Name] {
			if name, ok := selector.X.(*ast.Ident); ok && name.Name == local {
				calls = append(calls, selector.Sel.Name)
			}
		}
		return true
	})
	return calls
}

// imports lists what the files import, sorted, each once.
func (s source) imports() []string {
	var imports []string
	for _, file := range s.files {
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				panic(err) // the parser has accepted it
			}
			imports = append(imports, imported)
		}
	}
	slices.Sort(imports)
	return slices.Compact(imports)
}

func layerOf(folder string) (layer, bool) {
	for _, layer := range layers {
		if covers(layer.folder, folder) {
			return layer, true
		}
	}
	return layer{}, false
}

// covers reports whether a pattern, a folder or a folder with /..., stands for a folder.
func covers(pattern, folder string) bool {
	parent, below := strings.CutSuffix(pattern, "/...")
	return folder == parent || below && strings.HasPrefix(folder, parent+"/")
}

func coveredBy(patterns []string, folder string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, folder) })
}

// within reports whether a path is one of the parents or below one.
func within(parents []string, imported string) bool {
	return slices.ContainsFunc(parents, func(parent string) bool { return covers(parent+"/...", imported) })
}

// isStandard reports whether an import is of the standard library: no first element of its paths has a dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// isModule reports whether a folder is a module of its own, such as those of the programs that the lab builds.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

// sources parses all non-test files of the module, in the order of their folders.
func sources(t *testing.T) []source {
	t.Helper()
	found := map[string][]*ast.File{}
	for _, top := range []string{"cmd", "e2e", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && (entry.Name() == "testdata" || isModule(file)) {
				return fs.SkipDir
			}
			if entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return nil
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(file))
			folder = filepath.ToSlash(folder)
			found[folder] = append(found[folder], parsed)
			return err
		})
		if err != nil {
			t.Fatalf("reading the packages below %s: %v", top, err)
		}
	}
	var sources []source
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		sources = append(sources, source{folder: folder, files: found[folder]})
	}
	return sources
}
