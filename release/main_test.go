package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spdx/tools-golang/json"
)

func TestCheckVersion(t *testing.T) {
	for _, good := range []string{"v0.1.0", "v1.2.3-rc.1", "v10.20.30"} {
		if err := checkVersion(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "0.1.0", "v1", "v1.2", "v01.2.3", "v1.2.3+build", "latest", "191f69b-dirty", "v1.2.3 ", "v1.2.3/x"} {
		if err := checkVersion(bad); err == nil || !strings.Contains(err.Error(), "make release VERSION=") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// initRepository creates a repository with one commit, and changes into it.
func initRepository(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z")
	for _, args := range [][]string{
		{"init", "--quiet"},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "--message", "first"},
	} {
		if output, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, output)
		}
	}
}

func TestUncommittedChangesAreRejected(t *testing.T) {
	initRepository(t)
	commit, created, err := head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(commit) != 40 || !created.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("commit %s of %s", commit, created)
	}
	if err := os.WriteFile("new.go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), []string{"--version", "v0.1.0"}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "uncommitted") || !strings.Contains(err.Error(), "new.go") {
		t.Errorf("with an uncommitted file: %v", err)
	}
	t.Chdir(t.TempDir())
	if _, _, err := head(t.Context()); err == nil || !strings.Contains(err.Error(), "git status") {
		t.Errorf("outside a repository: %v", err)
	}
}

func TestFailedRunKeepsOldRelease(t *testing.T) {
	initRepository(t) // without a Makefile
	if err := os.Mkdir("dist", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("dist/old", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(".git/info/exclude", []byte("/dist*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"--version", "v0.1.0"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "linux-amd64") {
		t.Errorf("got error %v", err)
	}
	if _, err := os.Stat("dist/old"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("dist.partial"); err == nil {
		t.Error("an incomplete release is left")
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	_ = run(t.Context(), []string{"--help"}, &out) // --help is reported as an error
	for _, word := range []string{"make release VERSION=v0.1.0", "--registry", "SPDX"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("%s is missing in:\n%s", word, &out)
		}
	}
}

// testRelease returns a release that describes the test's own program.
func testRelease(t *testing.T) (release, program) {
	t.Helper()
	r := release{version: "v0.1.0", registry: "example.com", created: time.Unix(0, 0).UTC(), folder: t.TempDir(), progress: &bytes.Buffer{}}
	if err := copyFile("/proc/self/exe", r.path("tests")); err != nil {
		t.Fatal(err)
	}
	return r, program{name: proxy, platform: platform{runtime.GOOS, runtime.GOARCH}, file: "tests"}
}

func TestSBOM(t *testing.T) {
	r, self := testRelease(t)
	if err := r.describePrograms([]program{self}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.path("tests.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, pkg := range document.Packages {
		found[pkg.PackageName] = pkg.PackageVersion
	}
	content, err := os.ReadFile(r.path("tests"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := document.Packages[0].PackageChecksums[0].Value, fmt.Sprintf("%x", sha256.Sum256(content)); got != want {
		t.Errorf("the program's checksum is %s, want %s", got, want)
	}
	if found["github.com/spdx/tools-golang"] == "" || found["stdlib"] != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("the modules are %v", found)
	}
	if len(document.Relationships) != len(document.Packages) {
		t.Errorf("%d relationships of %d packages", len(document.Relationships), len(document.Packages))
	}
}

func TestChecksums(t *testing.T) {
	r, _ := testRelease(t)
	if err := writeChecksums(r.folder); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksums)
	check.Dir = r.folder
	output, err := check.CombinedOutput()
	if err != nil || string(output) != "tests: OK\n" {
		t.Errorf("sha256sum: %v: %s", err, output)
	}
	var table bytes.Buffer
	if err := printFiles(&table, r.folder); err != nil || !strings.Contains(table.String(), filepath.Join(r.folder, "tests")) {
		t.Errorf("%v: %s", err, &table)
	}
}

// TestManifestImages needs the program kustomize, as `make programs` builds it.
func TestManifestImages(t *testing.T) {
	t.Chdir("..")
	r := release{version: "v0.1.0", registry: "registry.example", folder: t.TempDir(), kustomize: "bin/kustomize", progress: &bytes.Buffer{}}
	if err := r.renderManifests(context.Background()); err != nil {
		t.Fatal(err)
	}
	images := map[string]string{}
	for _, method := range installMethods {
		text, err := os.ReadFile(r.path(method.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# Vicinity v0.1.0\n#\n# ") {
			t.Errorf("%s begins with %.40q", method.file, text)
		}
		for line := range strings.Lines(string(text)) {
			if _, image, ok := strings.Cut(strings.TrimSpace(line), "image: "); ok {
				images[method.file] += image
			}
			if strings.HasPrefix(line, "#") && len(line) > 120 {
				t.Errorf("%s: a long line: %s", method.file, line)
			}
		}
		if !strings.Contains(string(text), "app.kubernetes.io/version: v0.1.0\n") {
			t.Errorf("%s has no version label", method.file)
		}
	}
	want := map[string]string{
		"install.yaml":                   "registry.example/vicinity-proxy:v0.1.0",
		"install-beside-kube-proxy.yaml": "registry.example/vicinity-proxy:v0.1.0",
		"install-webhook.yaml":           "registry.example/vicinity-webhook:v0.1.0",
		"install-webhook-enforce.yaml":   "registry.example/vicinity-webhook:v0.1.0",

		"install-webhook-topology-slices.yaml": "registry.example/vicinity-webhook:v0.1.0",
	}
	if diff := cmp.Diff(want, images); diff != "" {
		t.Errorf("images by file (-want +got):\n%s", diff)
	}
}
