package binaries

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// newBuilder returns a builder of a module with one small program.
func newBuilder(t *testing.T, program string) builder {
	t.Helper()
	source := t.TempDir()
	files := map[string]string{
		"go.mod":  "module example.com/hello\n\ngo 1.26\n",
		"main.go": program,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(source, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	module := Module{
		name: "hello", upstream: "example.com/hello", packages: []string{"."}, timeout: "a moment",
		stamp: func(string) []string { return []string{"main.version=v1.2.3"} },
	}
	return builder{module: module, source: source, cache: filepath.Join(t.TempDir(), "cache"), progress: &bytes.Buffer{}}
}

const hello = `package main

import "fmt"

var version = "unknown"

func main() { fmt.Print("hello ", version) }
`

func mustBuild(t *testing.T, b builder) (folder string) {
	t.Helper()
	folder, err := b.build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestAProgramIsBuiltWithItsVersionAndRuns(t *testing.T) {
	folder := mustBuild(t, newBuilder(t, hello))
	output, err := exec.CommandContext(t.Context(), filepath.Join(folder, "hello")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(output); got != "hello v1.2.3" {
		t.Errorf("the program printed %q, want hello v1.2.3", got)
	}
}

func TestAModuleIsBuiltOnce(t *testing.T) {
	b := newBuilder(t, hello)
	first := mustBuild(t, b)
	b.progress = &bytes.Buffer{}
	if second := mustBuild(t, b); second != first {
		t.Errorf("the first build is in %s, the second in %s, want the same folder", first, second)
	}
	if output := b.progress.(*bytes.Buffer).String(); output != "" {
		t.Errorf("the second build reported %q", output)
	}
}

func TestAModuleIsRebuiltWhenAnyFileOfItChanges(t *testing.T) {
	b := newBuilder(t, hello)
	first := mustBuild(t, b)
	if err := os.WriteFile(filepath.Join(b.source, "more.go"), []byte("package main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if second := mustBuild(t, b); second == first {
		t.Error("a changed module was not rebuilt")
	}
}

// progress is a writer that several builds may use at the same time.
type progress struct {
	mu    sync.Mutex
	lines []string
}

func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, string(line))
	return len(line), nil
}

func TestConcurrentBuildsBuildOnce(t *testing.T) {
	b := newBuilder(t, hello)
	output := &progress{}
	b.progress = output
	var building sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		building.Go(func() { _, errs[i] = b.build(t.Context()) })
	}
	building.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	builds := 0
	for _, line := range output.lines {
		if strings.HasPrefix(line, "building ") {
			builds++
		}
	}
	if builds != 1 {
		t.Errorf("%d builds, want 1: %q", builds, output.lines)
	}
}

func TestAFailedBuildCleansUpAndCarriesTheCompilersOutput(t *testing.T) {
	b := newBuilder(t, "package main\n\nfunc main() { undefinedFunction() }\n")
	_, err := b.build(t.Context())
	if err == nil || !strings.Contains(err.Error(), "undefined: undefinedFunction") {
		t.Fatalf("got error %v, want the compiler's output", err)
	}
	entries, err := os.ReadDir(b.cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			t.Errorf("%s was not removed", entry.Name())
		}
	}
}

func TestMissingToolsOfACBuildAreReportedBeforeIt(t *testing.T) {
	present := library{name: "c", header: "stdio.h", debian: "libc6-dev"}
	if err := present.missing(t.Context(), "cc"); err != nil {
		t.Errorf("the C library is reported as missing: %v", err)
	}
	absent := library{name: "nosuchlibrary", header: "nosuchheader.h", debian: "libnosuch-dev"}
	err := absent.missing(t.Context(), "cc")
	if err == nil || !strings.Contains(err.Error(), "install the Debian packages libnosuch-dev") {
		t.Errorf("got error %v, want the package to install", err)
	}
}

func TestEveryModuleNamesItsVersion(t *testing.T) {
	root, err := Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range All {
		t.Run(module.name, func(t *testing.T) {
			b := builder{module: module, source: filepath.Join(sources(root), module.name)}
			version, err := b.version(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(version, "v") {
				t.Errorf("version %q, want one that starts with v", version)
			}
		})
	}
}

func TestKubernetesGetsItsVersionInParts(t *testing.T) {
	stamps := fmt.Sprint(stampKubernetes("v1.36.3"))
	for _, want := range []string{"version.gitVersion=v1.36.3", "version.gitMajor=1", "version.gitMinor=36"} {
		if !strings.Contains(stamps, "k8s.io/component-base/"+want) {
			t.Errorf("stamps lack %s: %s", want, stamps)
		}
	}
}
