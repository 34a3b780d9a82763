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

	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

const module = "github.com/vicinity-proxy/vicinity/"

// root is the repository's top folder, relative to this package.
const root = ".."

// sourceFolder has the non-test Go files of one folder.
type sourceFolder struct {
	folder string // relative to the root, with slashes
	files  []*ast.File
}

func TestImportRules(t *testing.T) {
	for _, source := range sources(t) {
		t.Run(source.folder, func(t *testing.T) {
			for _, violation := range violations(source) {
				t.Error(violation)
			}
		})
	}
}

func TestEveryPackageHasADocComment(t *testing.T) {
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

func TestImportRulesMatchPackages(t *testing.T) {
	all := sources(t)
	for _, rule := range rules {
		for _, pattern := range slices.Concat(rule.packages, rule.exempt, rule.forbidden, rule.allowed, rule.order) {
			matches := func(source sourceFolder) bool {
				return covers(pattern, source.folder) || slices.ContainsFunc(source.imports(), func(imported string) bool {
					return covers(pattern+"/...", imported)
				})
			}
			if !slices.ContainsFunc(all, matches) {
				t.Errorf("%s matches no package", pattern)
			}
		}
	}
}

// TestReadmeHasImportRules compares the table in README.md with the rules.
func TestReadmeHasImportRules(t *testing.T) {
	golden.Tables(t, "README.md", map[string]string{"import rules": rulesTable()})
}

// rulesTable formats the rules as Markdown.
func rulesTable() string {
	names := func(patterns []string) string {
		var names []string
		for _, pattern := range patterns {
			name := strings.TrimPrefix(pattern, "pkg/")
			if pattern == "..." || pattern == "pkg/..." {
				name = strings.Replace(pattern, "...", "*", 1)
			}
			names = append(names, "`"+name+"`")
		}
		return strings.Join(names, ", ")
	}
	except := func(text string, patterns []string) string {
		if len(patterns) == 0 {
			return text
		}
		return text + " but " + names(patterns)
	}
	var table strings.Builder
	table.WriteString("| packages | never import | because |\n|---|---|---|\n")
	for _, rule := range rules {
		if rule.order != nil {
			fmt.Fprintf(&table, "| %s | packages of a later entry in this list | %s |\n", names(rule.order), rule.reason)
			continue
		}
		forbidden := except(names(rule.forbidden), rule.allowed)
		if rule.pure {
			forbidden += "; clocks, logs, files, sockets, randomness"
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", except(names(rule.packages), rule.exempt), forbidden, rule.reason)
	}
	return table.String()
}

// violations lists the imports of a folder that break a rule.
func violations(source sourceFolder) []string {
	var found []string
	for _, rule := range rules {
		if rule.order != nil {
			found = append(found, layerViolations(rule, source)...)
			continue
		}
		if !coveredBy(rule.packages, source.folder) || coveredBy(rule.exempt, source.folder) {
			continue
		}
		for _, imported := range source.imports() {
			local, isLocal := strings.CutPrefix(imported, module)
			if isLocal && local != source.folder && coveredBy(rule.forbidden, local) && !coveredBy(rule.allowed, local) ||
				!isLocal && isWithinAny(rule.forbidden, imported) {
				found = append(found, fmt.Sprintf("%s must not import %s: %s", source.folder, local, rule.reason))
			}
		}
		if rule.pure {
			found = append(found, purityViolations(source)...)
		}
	}
	return found
}

// layerViolations lists a folder's imports of packages that come later in a rule's order.
func layerViolations(rule importRule, source sourceFolder) []string {
	var found []string
	folderRank, isOrdered := rank(rule.order, source.folder)
	for _, imported := range source.imports() {
		local, isLocal := strings.CutPrefix(imported, module)
		if !isLocal || !isOrdered {
			continue
		}
		if importedRank, _ := rank(rule.order, local); importedRank > folderRank {
			found = append(found, fmt.Sprintf("%s must not import %s, a later layer: %s", source.folder, local, rule.reason))
		}
	}
	return found
}

// rank returns the position of the longest pattern that covers a folder.
func rank(order []string, folder string) (position int, isOrdered bool) {
	longest := 0
	for i, pattern := range order {
		if covers(pattern, folder) && len(pattern) > longest {
			position, isOrdered, longest = i, true, len(pattern)
		}
	}
	return position, isOrdered
}

// purityViolations lists the imports and the uses of clocks that a pure package must not have.
func purityViolations(source sourceFolder) []string {
	var found []string
	for _, imported := range source.imports() {
		if reason, ok := impure[imported]; ok {
			found = append(found, fmt.Sprintf("%s is pure and must not import %s: %s", source.folder, imported, reason))
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

// imports returns the distinct imports of the files, sorted.
func (s sourceFolder) imports() []string {
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

// covers reports whether a pattern, which is a folder or a folder with /..., matches a folder.
func covers(pattern, folder string) bool {
	if pattern == "..." {
		return true
	}
	parent, includesSubfolders := strings.CutSuffix(pattern, "/...")
	return folder == parent || includesSubfolders && strings.HasPrefix(folder, parent+"/")
}

func coveredBy(patterns []string, folder string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, folder) })
}

// isWithinAny reports whether a path is one of the parents or below one.
func isWithinAny(parents []string, imported string) bool {
	return slices.ContainsFunc(parents, func(parent string) bool { return covers(parent+"/...", imported) })
}

// isModule reports whether a folder is a separate module, such as a program that the lab builds.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

// sources parses all non-test files of the module, in the order of their folders.
func sources(t *testing.T) []sourceFolder {
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
			t.Fatalf("read the packages below %s: %v", top, err)
		}
	}
	var sources []sourceFolder
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		sources = append(sources, sourceFolder{folder: folder, files: found[folder]})
	}
	return sources
}
