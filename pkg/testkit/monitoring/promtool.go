package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the repository's root folder.
var root = findRoot()

func findRoot() string {
	folder, err := os.Getwd()
	if err != nil {
		return ""
	}
	for ; folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			break
		}
	}
	return folder
}

// monitoring is the folder with the dashboards and the alerts.
var monitoring = filepath.Join(root, "manifests", "monitoring")

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(monitoring, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// promtool runs promtool, as `make programs` builds it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program := filepath.Join(root, "bin", "promtool")
	if output, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v (make programs builds it)\n%s", strings.Join(args, " "), err, output)
	}
}
