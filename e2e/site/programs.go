package site

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// Program returns the path of one of our programs, as `make programs` builds it: tests compile nothing. It fails the
// test if a file that the program is built from has changed since.
//
// Reading these files also shows `go test` when a cached result is out of date: it does not see the files that other
// processes read.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := program(name)
	must.Succeed(t, err)
	return path
}

func program(name string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	var built unix.Stat_t // not with package os, which `go test` tracks: each build changes the file
	if err := unix.Stat(path, &built); err != nil {
		return "", fmt.Errorf("find %s: %w; run make programs", path, err)
	}
	for _, from := range append(builtFrom[name], "go.mod", "go.sum") {
		newest, err := newestSource(filepath.Join(root, from))
		if err != nil {
			return "", err
		}
		if newest.changed.After(time.Unix(built.Mtim.Unix())) {
			return "", fmt.Errorf("%s changed after %s was built: run make programs", newest.path, path)
		}
	}
	return path, nil
}

// builtFrom lists the sources of each program, without third-party modules.
var builtFrom = map[string][]string{
	"proxy":   {"cmd/proxy", "pkg"},
	"webhook": {"cmd/webhook", "pkg"},
	"lab":     {"e2e/lab", "e2e/fabric"},
	"pause":   {"e2e/lab/image/pause"},
	// These programs come from the modules of our tools, and not from this repository.
	"prometheus": {".lint/go.mod"}, "promtool": {".lint/go.mod"},
}

type sourceFile struct {
	path    string
	changed time.Time
}

// newestSource returns the newest file that a program could be built from.
func newestSource(root string) (newest sourceFile, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "testkit"):
			return fs.SkipDir
		case entry.IsDir(), strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".md"):
			return nil
		}
		info, err := os.Stat(path)
		if err == nil && info.ModTime().After(newest.changed) {
			newest = sourceFile{path, info.ModTime()}
		}
		return err
	})
	if err != nil {
		return sourceFile{}, fmt.Errorf("list sources of our programs: %w", err)
	}
	return newest, nil
}

// Saboteur returns nft under another name, which must be reported.
func Saboteur(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("nft")
	must.Succeed(t, err)
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	copied := filepath.Join(t.TempDir(), "saboteur")
	must.Succeed(t, os.WriteFile(copied, text, 0o700))
	return copied
}

// repository returns the root folder of the repository.
func repository() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
	}
	return "", errors.New("the working directory is not inside the repository")
}
