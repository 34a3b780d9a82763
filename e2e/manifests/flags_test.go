package manifests_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/site"
)

// otherProgramsFlags are the flags of other programs that our texts contain, by program.
var otherProgramsFlags = map[string]string{
	"az":             "labels zones",
	"docker build":   "build-arg platform push tag",
	"firewall-cmd":   "add-port add-source permanent reload zone",
	"flannel":        "kube-subnet-mgr",
	"git":            "show-toplevel",
	"k3s":            "disable-kube-proxy",
	"kind":           "name nodes",
	"kube-apiserver": "enable-aggregator-routing",
	"kubeadm":        "pod-network-cidr skip-phases yes",
	"kubectl": "all-namespaces all-pods cascade dry-run field-selector for from-file ignore-not-found local minify patch prefix previous " +
		"raw selector since subresource tail tcp timeout type",
	"kube-proxy":            "cleanup",
	"kubelet":               "register-with-taints",
	"kube-router":           "enable-ipv6",
	"promtool":              "lint lint-fatal",
	"sysctl":                "system",
	"unshare":               "net",
	"our lab":               "dir images kube-proxy localhost node-dns",
	"our suites, by ginkgo": "focus",
	"RKE2":                  "kube-proxy-config",
}

var (
	flagPattern = regexp.MustCompile(`(?:^|[^\w-])--([a-z][a-z0-9-]*)`)
	helpLine    = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`)
)

// TestEachFlagThatATextNamesExists checks the help, log messages and errors of both programs, the documents and the
// manifests. CHANGELOG.md is excluded, because it describes the past.
func TestEachFlagThatATextNamesExists(t *testing.T) {
	known, mentions := map[string]bool{}, map[string][]string{}
	for _, program := range []string{"proxy", "webhook"} {
		for _, flag := range vicinityFlags(t, program) {
			known[flag] = true
		}
	}
	for _, flag := range kubeProxyFlags(t) {
		known[flag] = true
	}
	record := func(file, text string) {
		for _, word := range flagPattern.FindAllStringSubmatch(text, -1) {
			mentions[word[1]] = append(mentions[word[1]], file)
		}
	}
	for file, text := range texts(t) {
		record(file, text)
	}
	if len(mentions) < 100 || len(known) < 100 {
		t.Fatalf("found %d mentioned and %d existing flags, want at least 100 of each", len(mentions), len(known))
	}
	foreign := map[string]bool{}
	for program, list := range otherProgramsFlags {
		for flag := range strings.FieldsSeq(list) {
			if foreign[flag] = true; mentions[flag] == nil {
				t.Errorf("no text mentions --%s of %s any more", flag, program)
			}
			if known[flag] && program != "kubectl" {
				t.Errorf("--%s is also a flag of Vicinity", flag)
			}
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(mentions)) {
		begins := func(other string) bool { return strings.HasSuffix(flag, "-") && strings.HasPrefix(other, flag) } // "--conntrack-..."
		if !known[flag] && !foreign[flag] && !slices.ContainsFunc(slices.Collect(maps.Keys(known)), begins) {
			t.Errorf("no program has --%s, which is mentioned in %q", flag, slices.Compact(mentions[flag]))
		}
	}
}

// vicinityFlags returns the flags in the help of all commands of a program.
func vicinityFlags(t *testing.T, program string) []string {
	t.Helper()
	path := site.Program(t, program)
	help := func(args ...string) string {
		text, err := exec.CommandContext(t.Context(), path, append(args, "--help")...).Output()
		if err != nil {
			t.Fatalf("%s %s --help: %v", program, args, err)
		}
		return string(text)
	}
	_, list, found := strings.Cut(help(), "Commands:\n")
	if !found {
		t.Fatalf("the help of %s has no commands:\n%s", program, help())
	}
	var flags []string
	for line := range strings.Lines(list) {
		name, isCommand := strings.CutPrefix(line, "  ")
		if words := strings.Fields(name); isCommand && len(words) > 1 {
			for _, flag := range helpLine.FindAllStringSubmatch(help(words[0]), -1) {
				flags = append(flags, flag[1])
			}
		}
	}
	return flags
}

// kubeProxyFlags returns kube-proxy's flags that the proxy accepts and hides. A test of cmd/proxy compares them with
// the tables.
func kubeProxyFlags(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(root + "/cmd/proxy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "<!-- begin: settings without meaning -->")
	table, _, found := strings.Cut(table, "<!-- end: settings without meaning -->")
	if !found {
		t.Fatal("cmd/proxy/README.md has no table of settings without meaning")
	}
	var flags []string
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			flags = append(flags, strings.Trim(strings.TrimSpace(cells[2]), "`-"))
		}
	}
	for _, flag := range []string{"hostname-override", "iptables-sync-period", "logging-format"} { // other names of ours
		if !strings.Contains(string(text), "`--"+flag+"`") {
			t.Errorf("cmd/proxy/README.md does not name --%s", flag)
		}
		flags = append(flags, flag)
	}
	return flags
}

// texts returns what people read, by file: documents, manifests, and the strings in the code of both programs.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || strings.HasPrefix(name, ".") && name != "."):
			return fs.SkipDir
		case entry.IsDir() || name == "CHANGELOG.md":
			return nil
		case strings.HasSuffix(name, ".md"), strings.HasPrefix(name, "manifests/"):
			text, err := os.ReadFile(path)
			all[name] = string(text)
			return err
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") &&
			(strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "pkg/")):
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if literal, is := node.(*ast.BasicLit); is && literal.Kind == token.STRING {
					all[name] += literal.Value[1:len(literal.Value)-1] + "\n"
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
